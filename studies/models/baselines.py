"""What squared circuits are compared with: Gaussians, their mixtures, and normalising flows."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from studies.data.splits import Splits
from studies.models.evaluation import LogProb, evaluate, log_likelihoods
from studies.models.training import Schedule

GAUSSIAN, GMM = "Gaussian", "GMM"
MAF, NSF, COUPLING = "MAF", "NSF", "RealNVP"
FLOWS = (MAF, NSF, COUPLING)
# A flow is stopped after so many epochs without a better validation score.
PATIENCE = 10
# Tails that no flow has learned would be infinitely unlikely; a long step would lose it.
CLIP = 5.0


def fit_gaussian(splits: Splits) -> dict[str, Any]:
    """One Gaussian of full covariance by maximum likelihood."""
    rows = splits.train.double()
    covariance = rows.mT.cov(correction=0)
    normal = torch.distributions.MultivariateNormal(rows.mean(0), covariance)
    size = rows.shape[1]
    count = size + size * (size + 1) // 2
    return evaluate(lambda x: normal.log_prob(x.double()), splits) | {"parameters": count}


def fit_mixture(splits: Splits, sizes: tuple[int, ...], seed: int) -> dict[str, Any]:
    """scikit-learn's Gaussian mixture of full covariances, its size chosen by validation."""
    train, valid = splits.train.double().numpy(), splits.valid.double().numpy()
    best: GaussianMixture | None = None
    best_score = -float("inf")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for size in sizes:
            fitted = GaussianMixture(size, random_state=seed).fit(train)
            score = float(fitted.score(valid))
            if score > best_score:
                best, best_score = fitted, score
    if best is None:
        raise ValueError(f"a Gaussian mixture needs sizes with finite scores, got {sizes}.")
    scores = best.score_samples
    facts = {"components": best.n_components, "parameters": int(best._n_parameters())}
    return evaluate(lambda x: torch.from_numpy(scores(x.double().numpy())), splits) | facts


class TrainedFlow(NamedTuple):
    """A flow that has learned, and the rows by which it was standardised."""

    flow: nn.Module
    rows: Tensor
    facts: dict[str, Any]

    @property
    def log_prob(self) -> LogProb:
        """log p of rows in their own units, the flow seeing standardised ones."""
        centre, scale = _units(self.rows)
        log_volume = scale.double().log().sum()
        return lambda x: self.flow().log_prob((x - centre) / scale) - log_volume

    def sample(self, count: int) -> Tensor:
        """Rows (count, d) in their own units."""
        centre, scale = _units(self.rows)
        drawn: Tensor = self.flow().sample((count,))
        return drawn * scale + centre


def fit_flow(
    kind: str, splits: Splits, schedule: Schedule, *, hidden: tuple[int, ...], seed: int
) -> dict[str, Any]:
    """The scores of a flow of zuko."""
    trained = train_flow(kind, splits, schedule, hidden=hidden, seed=seed)
    return evaluate(trained.log_prob, splits) | trained.facts


def train_flow(
    kind: str, splits: Splits, schedule: Schedule, *, hidden: tuple[int, ...], seed: int
) -> TrainedFlow:
    """A flow of zuko by Adam, stopped early, the best epoch by validation kept."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # zuko draws its weights from the global generator
        flow = make_flow(kind, splits.train.shape[1], hidden).to(splits.train.device)
    facts: dict[str, Any] = {"parameters": sum(p.numel() for p in flow.parameters())}
    trained = TrainedFlow(flow, splits.train, facts)
    log_prob = trained.log_prob
    optimizer = torch.optim.Adam(flow.parameters(), lr=schedule.learning_rate)
    decay = CosineAnnealingLR(optimizer, schedule.epochs, schedule.learning_rate / 100)
    generator = torch.Generator().manual_seed(seed)
    best, state, best_epoch = -float("inf"), copy.deepcopy(flow.state_dict()), 0
    epoch = 0
    for epoch in range(1, schedule.epochs + 1):
        order = torch.randperm(len(splits.train), generator=generator).to(splits.train.device)
        for batch in order.split(schedule.batch_size):
            step(flow, optimizer, -log_prob(splits.train[batch]).mean())
        decay.step()
        score = float(log_likelihoods(log_prob, splits.valid).mean())
        if score > best:
            best, state, best_epoch = score, copy.deepcopy(flow.state_dict()), epoch
        elif epoch - best_epoch >= PATIENCE:
            break
    flow.load_state_dict(state)
    facts |= {"epochs": epoch, "best_epoch": best_epoch}
    return trained


def make_flow(kind: str, size: int, hidden: tuple[int, ...]) -> nn.Module:
    """A flow with as many transforms as the comparison papers' default, five."""
    try:
        flows = import_module("zuko.flows")
    except ImportError:
        raise ImportError(
            "flows need zuko: pip install 'subtractive[experiments]', or leave them out of the "
            "setting models."
        ) from None
    make: dict[str, Callable[..., nn.Module]] = {
        MAF: flows.MAF,
        NSF: flows.NSF,
        COUPLING: flows.RealNVP if hasattr(flows, "RealNVP") else flows.NICE,
    }
    if kind not in make:
        raise ValueError(f"flows are {', '.join(make)}, got {kind!r}.")
    return make[kind](features=size, transforms=5, hidden_features=hidden)


def step(flow: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """A step that is left out where the loss is not finite."""
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(flow.parameters(), CLIP)
    if bool(norm.isfinite()):
        optimizer.step()


def _units(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The centres and scales (d,) by which rows are standardised."""
    scale = rows.std(0)
    return rows.mean(0), torch.where(scale > 0, scale, 1.0)
