"""The one exception for the user."""

import copy
import pickle

import pytest

from papers_shared import InputError


class MaskError(InputError):
    pass


@pytest.mark.parametrize("error", [InputError("what", "hint"), InputError("what"), MaskError("what", hint="hint")])
def test_errors_survive_being_sent_between_processes(error):
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert (str(again), again.message, again.hint) == (str(error), error.message, error.hint)


def test_the_text_is_what_the_command_line_prints():
    assert str(InputError("a.png is empty", hint="give another")) == "a.png is empty; give another"
    assert str(InputError("a.png is empty")) == "a.png is empty"
    assert isinstance(InputError("x"), ValueError)
