"""Run two real harnesses on a small packaged model: how the 40 real rows of the embedded corpus were made.

``python -m evalcards.real_rows MODEL_DIR OUT_DIR`` needs lm-eval and inspect-ai with torch, transformers and
accelerate, a Hugging Face model folder (for us SmolLM2-135M-Instruct, saved from its GGUF file) and no network: the
tasks are written here. Called again after a kill, it goes on with the runs that are not done.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

CAPITALS = [
    ("France", "Paris"), ("Japan", "Tokyo"), ("Italy", "Rome"), ("Spain", "Madrid"), ("Germany", "Berlin"),
    ("Egypt", "Cairo"), ("Kenya", "Nairobi"), ("Norway", "Oslo"), ("Cuba", "Havana"), ("Peru", "Lima"),
    ("Greece", "Athens"), ("Poland", "Warsaw"), ("Austria", "Vienna"), ("Russia", "Moscow"), ("China", "Beijing"),
    ("Ireland", "Dublin"), ("Portugal", "Lisbon"), ("Canada", "Ottawa"), ("Iran", "Tehran"), ("Iraq", "Baghdad"),
    ("Finland", "Helsinki"), ("Chile", "Santiago"), ("Sweden", "Stockholm"), ("Hungary", "Budapest"),
]  # fmt: skip
"""Country and capital."""

AGREEMENT = [
    ("The keys to the cabinet", "are", "is", "on the table."),
    ("The author of the books", "lives", "live", "near the sea."),
    ("The dogs near the fence", "bark", "barks", "at night."),
    ("The picture of the children", "hangs", "hang", "in the hall."),
    ("The girls who met the teacher", "were", "was", "happy."),
    ("The boy with the red balloons", "was", "were", "late."),
    ("The shops behind the church", "open", "opens", "at nine."),
    ("The box of old letters", "belongs", "belong", "to my aunt."),
    ("The farmers by the river", "grow", "grows", "rice."),
    ("The window above the stairs", "lets", "let", "in the light."),
    ("The players on the bench", "wait", "waits", "for the coach."),
    ("The taste of these apples", "is", "are", "sweet."),
]
"""Subject with a distracting noun, right verb, wrong verb, rest."""

SENTIMENT = [
    ("A warm, funny film that I would gladly see again.", 1),
    ("The plot makes no sense and the acting is worse.", 0),
    ("The soup was cold and the waiter was rude.", 0),
    ("Lovely rooms, kind staff and the best breakfast in town.", 1),
    ("I fell asleep before the end, which was the good part.", 0),
    ("Every chapter is better than the one before.", 1),
    ("The battery died after two days.", 0),
    ("It works exactly as promised and looks beautiful.", 1),
    ("We laughed from the first scene to the last.", 1),
    ("A waste of money.", 0),
    ("The sound is thin and the buttons stick.", 0),
    ("My children love it and so do I.", 1),
]
"""Sentence and 1 for positive."""

WORDS = ["apple", "river", "stone", "green", "music", "table", "horse", "cloud", "bread", "night", "light", "paper"]

PROSE = [
    "The harbour wakes before the town does. Boats leave in the dark, and by the time the bakery opens its door the "
    "first of them are back, low in the water and loud with gulls.",
    "A proof is a walk that anyone can repeat. The first to make it may have wandered for years, but the path that is "
    "left behind is short, and each step of it rests on the one before.",
    "When the rain stopped we went out to look at the field. The furrows held long narrow mirrors, and in every mirror "
    "there was a piece of the same torn sky.",
    "To repair a clock is to find out what it was trying to do. The wheels remember; a worn tooth or a bent arbor "
    "tells the hour at which somebody wound it once too often.",
]
"""Paragraphs of our own, for perplexity."""


def documents() -> dict[str, list[dict[str, Any]]]:
    """Return the documents of every task, by the task's name."""
    names = [capital for _, capital in CAPITALS]
    capitals, arithmetic = [], []
    for index, (country, capital) in enumerate(CAPITALS):
        others = [names[(index + step) % len(names)] for step in (5, 11, 17)]
        place = index % 4
        choices = [*others[:place], capital, *others[place:]]
        capitals.append({"question": f"What is the capital of {country}?", "choices": choices, "label": place})
        a, b = 2 + index, 3 + (7 * index) % 23
        sums = [a + b + step for step in (-10, 1, 3)]
        options = [*sums[:place], a + b, *sums[place:]]
        arithmetic.append({"question": f"What is {a} + {b}?", "choices": [str(x) for x in options], "label": place})
    agreement = [
        {"question": subject, "choices": [f"{right} {rest}", f"{wrong} {rest}"], "label": 0}
        for subject, right, wrong, rest in AGREEMENT
    ]
    sentiment = [{"question": text, "choices": ["negative", "positive"], "label": label} for text, label in SENTIMENT]
    copying = [{"question": f"Repeat this word once: {word}", "answer": word} for word in WORDS]
    return {
        "local_capitals": capitals,
        "local_arithmetic": arithmetic,
        "local_agreement": agreement,
        "local_sentiment": sentiment,
        "local_copying": copying,
        "local_prose": [{"text": text} for text in PROSE],
    }


def _choice_task(name: str, prompt: str) -> dict[str, Any]:
    metrics = [{"metric": m, "aggregation": "mean", "higher_is_better": True} for m in ("acc", "acc_norm")]
    return {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": f"data/{name}.jsonl"}},
        "test_split": "test",
        "fewshot_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": prompt,
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{label}}",
        "metric_list": metrics,
        "metadata": {"version": 1.0},
    }


def task_configs() -> list[dict[str, Any]]:
    """Return lm-eval's task files, as mappings, and the group over the multiple-choice ones."""
    plain = "Question: {{question}}\nAnswer:"
    choice = [
        _choice_task("local_capitals", plain),
        _choice_task("local_arithmetic", plain),
        _choice_task("local_agreement", "{{question}}"),
        _choice_task("local_sentiment", "Review: {{question}}\nThe review is"),
    ]
    copying = {
        **_choice_task("local_copying", "{{question}}\nAnswer:"),
        "output_type": "generate_until",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["\n\n"], "do_sample": False, "temperature": 0.0, "max_gen_toks": 12},
        "filter_list": [
            {"name": "strict", "filter": [{"function": "remove_whitespace"}, {"function": "take_first"}]},
            {
                "name": "flexible",
                "filter": [{"function": "regex", "regex_pattern": "([a-z]+)"}, {"function": "take_first"}],
            },
        ],
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    del copying["doc_to_choice"]
    prose = {
        **_choice_task("local_prose", ""),
        "output_type": "loglikelihood_rolling",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": m} for m in ("word_perplexity", "byte_perplexity", "bits_per_byte")],
    }
    del prose["doc_to_choice"], prose["fewshot_split"]
    group = {
        "group": "local_choice",
        "group_alias": "local choice",
        "task": [task["task"] for task in choice],
        "aggregate_metric_list": [{"metric": "acc", "aggregation": "mean", "weight_by_size": True}],
        "metadata": {"version": 1.0},
    }
    return [*choice, copying, prose, group]


INSPECT_TASKS = '''"""Tasks for Inspect, written by evalcards.real_rows."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample, json_dataset
from inspect_ai.scorer import includes, match
from inspect_ai.solver import generate, system_message


def _samples(name):
    def sample(record):
        answer = record["answer"] if "answer" in record else record["choices"][record["label"]]
        return Sample(input=record["question"], target=answer)

    return json_dataset(f"data/{name}.jsonl", sample)


@task
def local_capitals_open():
    return Task(_samples("local_capitals"), solver=generate(), scorer=includes(), version=1)


@task
def local_copying_open():
    system = system_message("Answer with one word.")
    return Task(_samples("local_copying"), solver=[system, generate()], scorer=[includes(), match()], version=1)
'''

LM_EVAL_RUNS: tuple[tuple[str, list[str], list[str]], ...] = (
    ("zero-shot", ["local_choice", "local_copying", "local_prose"], []),
    ("three-shot", ["local_choice", "local_copying"], ["--num_fewshot", "3"]),
    ("chat", ["local_choice", "local_copying"], ["--apply_chat_template"]),
)
INSPECT_RUNS: tuple[tuple[str, list[str]], ...] = (
    ("local_capitals_open", ["--temperature", "0.2", "--max-tokens", "24"]),
    ("local_capitals_open", ["--temperature", "0.8", "--top-p", "0.9", "--max-tokens", "24", "--seed", "1"]),
    ("local_copying_open", ["--max-tokens", "32"]),
)


def write_tasks(work: Path) -> None:
    """Write documents, lm-eval's task files (YAML 1.2 reads JSON) and Inspect's task file into ``work``."""
    (work / "data").mkdir(parents=True, exist_ok=True)
    (work / "tasks").mkdir(exist_ok=True)
    for name, rows in documents().items():
        (work / "data" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for config in task_configs():
        name = config.get("group") or config["task"]
        (work / "tasks" / f"{name}.yaml").write_text(json.dumps(config, indent=1))
    (work / "inspect_tasks.py").write_text(INSPECT_TASKS)


def run(model: Path, out: Path) -> None:
    """Run every harness and leave its own files in ``out``: results_*.json and samples_*.jsonl by run, and *.eval."""
    work = out / "work"
    write_tasks(work)
    link = work / "SmolLM2-135M-Instruct"
    if not link.exists():
        link.symlink_to(model.resolve(), target_is_directory=True)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "INSPECT_DISPLAY": "plain"}
    scripts = Path(sys.executable).parent

    def call(name: str, *command: str) -> None:
        """Run a command, unless an earlier call has finished it."""
        done = work / f"{name}.done"
        if not done.exists():
            subprocess.run([str(scripts / command[0]), *command[1:]], cwd=work, env=environment, check=True)
            done.touch()

    for name, tasks, more in LM_EVAL_RUNS:
        call(
            name,
            *["lm_eval", "--model", "hf", "--model_args", f"pretrained={link.name},dtype=float32", "--device", "cpu"],
            *["--tasks", ",".join(tasks), "--include_path", "tasks", "--batch_size", "8", "--log_samples"],
            *["--output_path", f"lm_eval/{name}", *more],
        )
    for number, (task, more) in enumerate(INSPECT_RUNS):
        call(
            f"inspect-{number}",
            *["inspect", "eval", f"inspect_tasks.py@{task}", "--model", "hf/smollm2"],
            *["-M", f"model_path={link.name}", "-M", "device=cpu", "--max-connections", "4"],
            *["--log-dir", f"inspect/{number}", *more],
        )
    for path in sorted(work.glob("lm_eval/**/results_*.json")):
        place = out / path.relative_to(work).parts[1]
        place.mkdir(exist_ok=True)
        _without_machine(path, place / path.name)
    for path in sorted(work.glob("lm_eval/zero-shot/**/samples_local_copying_*.jsonl")):
        shutil.copy(path, out / "zero-shot" / path.name)
    for path in sorted(work.glob("inspect/*/*.eval")):
        shutil.copy(path, out / path.name.replace("+", "-"))


def _without_machine(path: Path, target: Path) -> None:
    """Copy a results file without the lines in which lm-eval describes the machine."""
    document = json.loads(path.read_text())
    for key in ("pretty_env_info", "git_hash", "upper_git_hash"):
        document.pop(key, None)
    target.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]))
