"""A release tag must name a package and its declared version."""

import pytest

from new_paper import write_skeleton
from release import package_of


@pytest.fixture
def root(tmp_path):
    write_skeleton("alpha", "doalpha", tmp_path)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "pyproject.toml").write_text('[project]\nname = "papers-shared"\nversion = "1.2.3"\n')
    return tmp_path


@pytest.mark.parametrize(("tag", "package"), [("alpha-v0.1.0", "alpha"), ("papers-shared-v1.2.3", "papers-shared")])
def test_a_right_tag_names_its_package(root, tag, package):
    assert package_of(tag, root) == package


@pytest.mark.parametrize(
    ("tag", "why"),
    [
        ("alpha-v9", "says 9, alpha's pyproject.toml says 0.1.0"),
        ("gamma-v0.1.0", "no package"),
        ("v0.1.0", "no package"),
        ("-v0.1.0", "no package"),
        ("alpha", "no package"),
        ("../shared-v1.2.3", "no package"),
        ("shared-v1.2.3", "no package"),
        ("alpha-v0.1.0-v0.1.0", "no package"),
        ("alpha-v", "says , alpha's"),
        ("alpha-v0.1", "says 0.1, alpha's"),
    ],
)
def test_a_wrong_tag_is_refused(root, tag, why):
    with pytest.raises(ValueError, match=why):
        package_of(tag, root)
