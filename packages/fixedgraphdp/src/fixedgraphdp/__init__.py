"""User-level differential privacy on a fixed public graph of who owns which example."""

from fixedgraphdp.bias import bias_report, inclusion_probabilities
from fixedgraphdp.bounding import Bounded, bound, certified
from fixedgraphdp.choice import choose_k
from fixedgraphdp.density import density
from fixedgraphdp.errors import BudgetError, InfeasibleError, PrivacyViolation
from fixedgraphdp.graph import AttributionGraph
from fixedgraphdp.greedy import OnlineBounder
from fixedgraphdp.mean import private_mean

__all__ = [
    "AttributionGraph",
    "Bounded",
    "BudgetError",
    "InfeasibleError",
    "OnlineBounder",
    "PrivacyViolation",
    "bias_report",
    "bound",
    "certified",
    "choose_k",
    "density",
    "inclusion_probabilities",
    "private_mean",
]
