"""The Muon optimizer: orthogonalised momentum for hidden weight matrices, Adam for all other parameters."""

import inspect
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from nmt.config.types import Count, Positive, Share
from nmt.kernels import onednn

# Coefficients of the quintic that moves every singular value in (0, 1] near 1 in a few steps (Jordan et al. 2024)
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Optimizer):
    """Updates hidden weight matrices by momentum that Newton-Schulz iterations make orthogonal (Jordan et al. 2024).

        M' = m M + (1 - m) G      W' = W - 0.2 sqrt(max(rows, columns)) lr O,   O = U V^T of (1 - m) G + m M' = U S V^T

    A weight that stacks several matrices, as the gates of a GRU, is split, and its matrices are updated separately
    (`hidden_matrices`). The factor gives the update the root mean square of Adam's usual updates (Liu et al. 2025), so
    that both share the learning rate `lr`. All other parameters (embeddings, positions, the output layer, vectors,
    convolutions) are updated by Adam with `betas` and `eps` (Kingma & Ba 2015). The iterations compute in `dtype`, by
    default the dtype of the weights.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: Positive,
        momentum: Share,
        num_iterations: Count,
        betas: tuple[Share, Share],
        eps: Positive,
        dtype: Literal["float32", "bfloat16"] | None = None,
    ) -> None:
        self._num_maps = {each: num for each, num in hidden_matrices(model).items() if each.requires_grad}
        hidden = [each for each in model.parameters() if each in self._num_maps]
        others = [each for each in model.parameters() if each.requires_grad and each not in self._num_maps]
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "num_iterations": num_iterations,
            "betas": betas,
            "eps": eps,
        }
        # fused: so that loading a state puts Adam's step count on the device of the weights
        groups: list[dict[str, Any]] = [{"params": hidden}, {"params": others, "fused": True}]
        super().__init__(groups, defaults)
        self.dtype = None if dtype is None else getattr(torch, dtype)

    def __str__(self) -> str:
        """The number of matrices and numbers that Muon and Adam update."""
        hidden, others = (sum(each.numel() for each in group["params"]) for group in self.param_groups)
        num_matrices = sum(self._num_maps.values())
        return (
            f"Muon updates {num_matrices} hidden matrices ({hidden:,} numbers), Adam {others:,} other numbers"
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one step of Muon and Adam; return the closure's loss if there is a closure."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        hidden, others = self.param_groups
        self._step_hidden(hidden)
        self._step_others(others)
        return loss

    def _step_hidden(self, group: dict[str, Any]) -> None:
        stepping = [each for each in group["params"] if each.grad is not None]
        if not stepping:
            return
        for each in stepping:
            if not self.state[each]:
                self.state[each]["momentum"] = torch.zeros_like(each)
        gradients = [each.grad for each in stepping]
        momenta = [self.state[each]["momentum"] for each in stepping]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        updates = torch._foreach_lerp(gradients, momenta, group["momentum"])
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for weight, update in zip(stepping, updates, strict=True):
            num_maps = self._num_maps[weight]
            for pair in zip(weight.chunk(num_maps), update.chunk(num_maps), strict=True):
                by_shape[pair[0].shape].append(pair)
        for shape, pairs in by_shape.items():
            weights, directions = zip(*pairs, strict=True)
            stacked = torch.stack(directions)
            steps = orthogonal(
                stacked.to(self.dtype or stacked.dtype), num_iterations=group["num_iterations"]
            )
            steps = steps.to(stacked.dtype)
            torch._foreach_add_(weights, steps.unbind(), alpha=-0.2 * max(shape) ** 0.5 * group["lr"])

    def _step_others(self, group: dict[str, Any]) -> None:
        stepping = [each for each in group["params"] if each.grad is not None]
        for each in stepping:
            if not self.state[each]:
                self.state[each].update(
                    step=torch.zeros((), dtype=torch.float32, device=each.device),
                    exp_avg=torch.zeros_like(each),
                    exp_avg_sq=torch.zeros_like(each),
                )
        states = [self.state[each] for each in stepping]
        beta1, beta2 = group["betas"]
        adam(
            stepping,
            [each.grad for each in stepping],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=0.0,
            eps=group["eps"],
            maximize=False,
        )


def hidden_matrices(model: nn.Module) -> dict[Tensor, int]:
    """The weights that map hidden vectors to hidden vectors, with the number of matrices that they stack by rows.

    These are the weights of linear, recurrent and attention layers, except the model's `output` and weights shared with
    an embedding. A layer declares a weight with several matrices: `stacked_maps = {"projection.weight": 3}`.
    """
    found: dict[Tensor, int] = {}
    for module in model.modules():
        for name, num_maps in getattr(module, "stacked_maps", {}).items():
            found[module.get_parameter(name)] = num_maps
        own = dict(module.named_parameters(recurse=False))
        if isinstance(module, nn.Linear):
            found.setdefault(module.weight, 1)
        elif isinstance(module, nn.RNNBase | nn.RNNCellBase):
            weights = [own[name] for name in own if name.startswith("weight")]
            found |= {weight: max(1, len(weight) // module.hidden_size) for weight in weights}
        elif isinstance(module, nn.MultiheadAttention):
            found |= {own[name]: 3 if name[0] == "i" else 1 for name in own if name.endswith("proj_weight")}
    outer = [each for each in model.modules() if isinstance(each, nn.Embedding)]
    apart = {id(getattr(each, "weight", None)) for each in (*outer, getattr(model, "output", None))}
    return {each: num for each, num in found.items() if id(each) not in apart and min(each.shape) > 1}


def make_optimizer(
    factory: Callable[..., torch.optim.Optimizer], model: nn.Module, *, precision: str = "32-true"
) -> torch.optim.Optimizer:
    """Call an optimizer's factory: with the model if it has a parameter `model`, as Muon, else with the parameters.

    Muon's iterations compute in bfloat16 if the products of the training do (`precision`) and no dtype is given.
    """
    parameters = inspect.signature(factory).parameters
    if "model" not in parameters:
        return factory([each for each in model.parameters() if each.requires_grad])
    optimizer = factory(model)
    if isinstance(optimizer, Muon) and precision == "bf16-mixed":
        optimizer.dtype = optimizer.dtype or torch.bfloat16
    return optimizer


def orthogonal(
    matrices: Tensor, *, num_iterations: int, coefficients: tuple[float, float, float] = COEFFICIENTS
) -> Tensor:
    """Approximately `U V^T` for each matrix `U S V^T` of [N, rows, columns]: singular values near 1."""
    first, third, fifth = coefficients
    wide = matrices.size(-2) <= matrices.size(-1)
    x = matrices if wide else matrices.transpose(-2, -1)
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    for _ in range(num_iterations):
        square = onednn.multiply_each(x, x)
        polynomial = onednn.multiply_each(square, square).mul_(fifth).add_(square, alpha=third)
        x = onednn.multiply_each(polynomial, x.transpose(-2, -1)).add_(x, alpha=first)
    return x if wide else x.transpose(-2, -1)
