"""A causal language model of the Hugging Face kind on this machine, with log-probabilities."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from papers_shared.chat import ChatModel, Reply, Request, TokenLogprob, function_chat
from sanctionspairs.errors import SanctionsPairsError


def hf_chat(folder: str, *, cache: str | os.PathLike[str] | None = None, device: str | None = None) -> ChatModel:
    """Return a chat model that runs a local folder (or cached name) through transformers, greedily.

    Parameters
    ----------
    folder
        What ``from_pretrained`` takes; ``folder#file.gguf`` reads a GGUF file in it.
    cache
        Folder for answers.
    device
        By default ``cuda`` if there is one.

    Raises
    ------
    SanctionsPairsError
        torch or transformers is not installed, or the model cannot be loaded.
    """
    model, tokenizer = _load(folder, device)

    def answer(request: Request) -> Reply:
        return _generate(model, tokenizer, request, folder)

    return function_chat(answer, model=Path(folder.partition("#")[0]).name, cache=cache)


@functools.lru_cache(maxsize=1)
def _load(folder: str, device: str | None) -> tuple[Any, Any]:
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise SanctionsPairsError("hf: models need torch and transformers", "install sanctionspairs[local]") from error
    place, _, gguf = folder.partition("#")
    extra = {"gguf_file": gguf} if gguf else {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, **extra)
        model = AutoModelForCausalLM.from_pretrained(place, **extra)
    except (OSError, ValueError) as error:
        raise SanctionsPairsError(f"cannot load the model {folder}: {str(error).splitlines()[0]}") from error
    return model.to(device or ("cuda" if torch.cuda.is_available() else "cpu")).eval(), tokenizer


def _generate(model: Any, tokenizer: Any, request: Request, name: str) -> Reply:
    import torch

    if tokenizer.chat_template:
        ids = tokenizer.apply_chat_template(
            request.messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
    else:
        text = "\n\n".join(str(message["content"]) for message in request.messages)  # ty: ignore[invalid-argument-type]
        ids = tokenizer(f"{text}\n\n", return_tensors="pt")
    ids = {key: value.to(model.device) for key, value in ids.items() if key in ("input_ids", "attention_mask")}
    most = int(request.options.get("max_tokens") or 512)
    with torch.inference_mode():
        made = model.generate(
            **ids,
            max_new_tokens=most,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            pad_token_id=tokenizer.eos_token_id,
        )
    start = ids["input_ids"].shape[1]
    tokens = made.sequences[0, start:].tolist()
    logprobs = []
    for token, scores in zip(tokens, made.scores, strict=True):
        log = torch.log_softmax(scores[0].float(), dim=-1)
        top = torch.topk(log, min(5, log.shape[-1]))
        others = {
            tokenizer.decode([i]): float(v) for v, i in zip(top.values.tolist(), top.indices.tolist(), strict=True)
        }
        logprobs.append(TokenLogprob(tokenizer.decode([token]), float(log[token]), others))
    ended = bool(tokens) and tokens[-1] == tokenizer.eos_token_id
    return Reply(
        text=tokenizer.decode(tokens, skip_special_tokens=True),
        finish_reason="stop" if ended else "length",
        logprobs=tuple(logprobs),
        model=name,
        prompt_tokens=start,
        completion_tokens=len(tokens),
    )
