"""Work recorded on a GPU, the batches of few shapes that it is recorded for, and the kernels that are chosen there."""

import copy

import pytest
import torch
from torch.nn import functional as F

from nmt import kernels
from nmt.data.batching import Batch, of_few_shapes
from nmt.kernels import loss as kernels_of_loss
from nmt.layers import transformer_attention
from nmt.layers.cells import GRULayer, LSTMLayer
from nmt.training.losses import output_loss
from nmt.training.module import TranslationModule
from tests.test_recurrent import BOS, EOS, PAD, Case, build, every_case, sources, targets

IDS = {"pad_id": PAD, "bos_id": BOS, "eos_id": EOS}
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
STEPPING = Case("bahdanau", "attend_then_update", 2)


def batch() -> Batch:
    src, _ = sources()
    tgt_in = targets()
    tgt_out = torch.cat((tgt_in[:, 1:], torch.full((len(tgt_in), 1), EOS)), dim=1)
    tgt_out[1, 2:] = PAD
    return Batch(torch.arange(len(src)), src, tgt_in, tgt_out, guide=None)


def gradients(model, given: Batch) -> list[torch.Tensor]:
    """The loss and its gradients, with whatever the attention's weights add to it."""
    model.zero_grad()
    memory = model.encode(given.src, given.src != PAD)
    features, weights = model.read(memory, given.tgt_in, need_weights=True)
    loss = output_loss(features, model.output, given.tgt_out, pad_id=PAD, label_smoothing=0.1)
    real = given.tgt_out != PAD
    total = loss.smoothed if weights is None else loss.smoothed + weights[real].square().sum()
    total.backward()
    return [total.detach(), *(p.grad.clone() for p in model.parameters())]


@every_case
def test_a_batch_of_a_common_shape_has_the_same_loss_and_gradients(case):
    model = build(case)
    own = batch()
    common = of_few_shapes(own, **IDS, max_length=None)
    assert common.src.shape == (4, 6)
    assert common.tgt_in.shape == common.tgt_out.shape == (4, 4)
    torch.testing.assert_close(gradients(model, common), gradients(model, own), rtol=1e-9, atol=1e-11)


def test_few_shapes_are_not_much_larger():
    for number in range(1, 600):
        given = Batch(*[torch.full((number, 1), EOS)] * 4, guide=None)
        assert (
            number
            <= len(of_few_shapes(given, **IDS, max_length=None).src)
            <= max(number + 1, number * 17 / 16)
        )
        given = Batch(*[torch.full((1, number), EOS)] * 4, guide=None)
        columns = of_few_shapes(given, **IDS, max_length=None).src.size(1)
        assert number <= columns <= max(number + 1, number * 17 / 16)


def test_no_shape_is_longer_than_the_model_can_read():
    common = of_few_shapes(batch(), **IDS, max_length=5)
    assert common.src.shape == (4, 5)
    assert of_few_shapes(batch(), **IDS, max_length=3).src.shape == (4, 5)  # the model says what is too long


def module_of(model, **changes) -> TranslationModule:
    settings = {"label_smoothing": 0.1, "guided_alignment": 0.0} | changes
    return TranslationModule(model, optimizer=None, scheduler=None, **settings).train()


def on(device: str, given: Batch) -> Batch:
    return Batch(*(None if each is None else each.to(device) for each in given))


def step(module: TranslationModule, given: Batch) -> list[torch.Tensor]:
    """What a batch's loss is made of, and its gradients."""
    module.zero_grad()
    loss = module.loss_of(given)
    loss.smoothed.backward()
    return [*(each.detach() for each in loss), *(p.grad.clone() for p in module.parameters())]


def steps(module: TranslationModule, batches: list[Batch], name: str) -> list[list[torch.Tensor]]:
    """Steps on the GPU with these kernels, on a copy whose weights change in place after each."""
    module, found = copy.deepcopy(module).cuda(), []
    torch.manual_seed(3)
    for given in batches:
        with kernels.using(name):
            found.append(step(module, given))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(0.9)
        torch.clear_autocast_cache()  # as a training does, whose autocast ends with each step
    recorded = name == "fast" and kernels.records(next(module.parameters()))
    assert len(module._recorder._recordings) == recorded * len({each.src.shape for each in batches})
    return found


@on_gpu
@every_case
def test_what_is_recorded_has_the_same_loss_and_gradients(case):
    short = on("cuda", batch())
    long = Batch(*(each.repeat(2, 1) if each.dim() > 1 else each.repeat(2) for each in short[:4]), None)
    module = module_of(build(case))
    batches = [short, long, short, long]
    near = {"rtol": 1e-9, "atol": 1e-11}
    torch.testing.assert_close(steps(module, batches, "fast"), steps(module, batches, "plain"), **near)


@on_gpu
@pytest.mark.parametrize("autocast", [False, True], ids=["float64", "bfloat16"])
@pytest.mark.parametrize(
    "settings", [{"r_drop": 2.0}, {"guided_alignment": 0.5}, {"r_drop": 2.0, "guided_alignment": 0.5}]
)
def test_a_recording_draws_the_same_random_numbers(settings, autocast, monkeypatch):
    """And under autocast it reads the weights that there are now, no copy in bfloat16 of those that there were."""
    model = build(STEPPING, dropout=0.3, attention_dropout=0.3)
    module = module_of(model.float() if autocast else model, **settings)
    given = batch()._replace(guide=torch.full((3, 4, 5), 0.2))
    given = on("cuda", of_few_shapes(given, **IDS, max_length=None))

    def three() -> list[list[torch.Tensor]]:
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            return steps(module, [given] * 3, "fast")

    recorded = three()
    assert recorded[0][0] != recorded[1][0]
    monkeypatch.setattr(kernels, "records", lambda _: False)
    # Sums in another order round differently; with the weights of the step before, all would be a tenth off.
    near = {"rtol": 2**-6, "atol": 2**-7} if autocast else {"rtol": 1e-9, "atol": 1e-11}
    torch.testing.assert_close(recorded, three(), **near)


@on_gpu
def test_gradients_after_another_pass_are_refused():
    module, given = module_of(build(STEPPING).cuda()), on("cuda", batch())
    first, second = (module.loss_of(given).smoothed for _ in range(2))
    second.backward()
    with pytest.raises(RuntimeError, match="another pass"):
        first.backward()


@on_gpu
def test_what_depends_on_numbers_of_the_gpu_is_refused():
    weight = torch.ones(3, device="cuda", requires_grad=True)
    with pytest.raises(RuntimeError, match="could not be recorded"):
        kernels.Recorder()(lambda x: x * weight * float(x.sum()), [weight], torch.ones(3, device="cuda"))
    assert kernels.Recorder()(lambda x: x * weight, [weight], torch.ones(3, device="cuda")).sum() == 3


@on_gpu
def test_a_model_that_cannot_be_recorded_is_not():
    module = module_of(build(STEPPING, gradient_checkpointing=True).cuda())
    step(module, on("cuda", batch()))
    assert not module._recorder._recordings


@on_gpu
@pytest.mark.parametrize("cell", [GRULayer, LSTMLayer])
def test_recurrences_keep_the_range_of_float32_under_autocast(cell):
    layer, inputs = cell(input_size=16, hidden_size=8), torch.randn(4, 6, 16)
    state = (torch.zeros(4, 8),) * layer.num_states
    exact, _ = copy.deepcopy(layer).double().run(inputs.double(), tuple(part.double() for part in state))
    layer = layer.cuda()
    with torch.autocast("cuda", torch.bfloat16):
        outputs, _ = layer.run(inputs.cuda(), tuple(part.cuda() for part in state))
    torch.testing.assert_close(outputs.double().cpu(), exact, rtol=1e-2, atol=1e-3)
    (1e6 * outputs.sum()).backward()  # infinite in float16
    assert all(each.grad.isfinite().all() for each in layer.parameters())


@on_gpu
@pytest.mark.parametrize("chosen", [True, False])
def test_attention_is_not_cudnns(chosen, monkeypatch):
    seen, fused = [], F.scaled_dot_product_attention

    def attention(*arguments, **options):
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        return fused(*arguments, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)
    parts = torch.randn(3, 2, 2, 5, 8)
    torch.backends.cuda.enable_cudnn_sdp(chosen)
    try:
        query, keys, values = parts.cuda()
        cache = transformer_attention.KeysValues(keys.transpose(-2, -1), values)
        found = transformer_attention._fused_attention(query, cache, None, True)
        assert torch.backends.cuda.cudnn_sdp_enabled() == chosen
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
    assert seen == [False]
    torch.testing.assert_close(found.cpu(), fused(*parts, is_causal=True))


def test_a_gpu_computes_more_logits_at_once():
    rows = kernels_of_loss._rows_at_once
    assert rows(torch.empty(1, 9000, 2), 8000) == 512
    assert rows(torch.empty(1, 9000, 2, device="meta"), 8000) == 4194
    assert rows(torch.empty(2, 9000, 2, device="meta"), 8000) == 2097
    assert rows(torch.empty(1, 9000, 2, device="meta"), 200_000) == 512
