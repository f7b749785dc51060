"""Minimum-cost bipartite matching and Wasserstein distances that follow insertions and deletions."""

from dynmatch.costs import graph_metric
from dynmatch.errors import CapacityError, NotAMetricError
from dynmatch.exact import ExactMatcher
from dynmatch.factory import Matching, make_matcher, match
from dynmatch.grid import GridMatcher
from dynmatch.hub import HubMatcher
from dynmatch.matcher import BaseMatcher
from dynmatch.protocol import Matcher, Update
from dynmatch.window import SlidingWindow

load = BaseMatcher.load

__all__ = [
    "CapacityError",
    "ExactMatcher",
    "GridMatcher",
    "HubMatcher",
    "Matcher",
    "Matching",
    "NotAMetricError",
    "SlidingWindow",
    "Update",
    "graph_metric",
    "load",
    "make_matcher",
    "match",
]
