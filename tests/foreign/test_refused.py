"""What can't be probed is refused in one line that says what to do."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from forecaster.errors import ConfigError
from small_models import WIDTH, encoder


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.lstm(x_BLD)[0]


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.conv(x_BLD.mT).mT


class ByHand(nn.Module):
    def forward(self, x_BLD: Tensor) -> Tensor:
        return (x_BLD @ x_BLD.mT).softmax(-1) @ x_BLD


class Kernel(nn.Module):
    def forward(self, x_BLD: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x_BLD, x_BLD, x_BLD)


class Reversed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = encoder(1)

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.inner(x_BLD.flip(1))


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = encoder(1)

    def forward(self, x_BLD: Tensor) -> Tensor:
        return nn.functional.dropout(self.inner(x_BLD), 0.2, training=True)


class Class(nn.Module):
    """A token that is no bar stands in place of the oldest."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.token = encoder(1), nn.Parameter(torch.randn(1, 1, WIDTH))

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.inner(torch.cat((self.token.expand(len(x_BLD), 1, WIDTH), x_BLD[:, 1:]), dim=1))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 4, 24, batch_first=True), 1)

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.inner(torch.nested.as_nested_tensor(list(x_BLD))).to_padded_tensor(0.0)


NONE = "gives no attention that is known"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")  # what one of them is about
@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (Recurrent, NONE),
        (Convolution, NONE),
        (ByHand, NONE),
        (Kernel, "scaled_dot_product_attention is called by a module that is not known"),
        (Reversed, "token 0 of the first attention does not read bar 1 of 12"),
        (Class, "token 0 of the first attention does not read bar 1 of 12"),
        (Noisy, "it draws random numbers in evaluation mode"),
        (Nested, "AssertionError: MultiheadAttention does not support NestedTensor outside of its fast path"),
        (lambda: encoder(batch_first=False), "call 0 of 2 of attention has 2 keys for 12 tokens"),
    ],
)
def test_a_model_whose_attention_can_not_be_had_is_refused_in_one_line(make, subject, inner, message):
    with pytest.raises(ConfigError, match=message) as refused:
        subject(make(inner))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value).split()) > 12  # what to do is said too


def looped(model: nn.Module, x_BLF: Tensor, future_BHK: Tensor) -> Tensor:
    return torch.cat([model(x_BLF[i : i + 1]) for i in range(len(x_BLF))])


FORECASTS = {
    "another shape": (lambda m, x, f: m(x)[:, 0], r"forecast gives \[2, 2\] for 2 windows: give means .*\[2, 3, 2\]"),
    "no tensor": (lambda m, x, f: m(x).tolist(), "forecast gives list for 2 windows"),
    "not finite": (lambda m, x, f: m(x) / 0.0, "numbers that are not finite"),
    "other features": (lambda m, x, f: m(x[:, :, :2]), r"forecast fails on windows \[2, 12, \d+\] of float32 on cpu"),
    "one by one": (looped, "2 calls of attention for 2 windows|4 calls of attention for 2 windows and 26 for 13"),
}


@pytest.mark.parametrize("name", FORECASTS)
def test_a_forecast_that_is_none_is_refused_in_one_line(make, subject, name):
    asked, message = FORECASTS[name]
    with pytest.raises(ConfigError, match=message) as refused:
        subject(make(), asked)
    assert "\n" not in str(refused.value)


def test_a_loss_of_another_shape_is_refused(make, subject):
    found = subject(make(), loss=lambda forecast, actual: np.abs(forecast - actual).mean())
    with pytest.raises(ConfigError, match=r"loss gives \[\]: give one number by window and target, \[7, 2\]"):
        found.point_losses(np.zeros((7, 3, 2)), np.ones((7, 3, 2)))


def test_what_is_no_module_or_has_no_weights_is_refused(make, subject):
    with pytest.raises(ConfigError, match=r"function is no torch\.nn\.Module"):
        subject(lambda x: x)
    lazy = make()
    lazy.readout = nn.LazyLinear(6)
    with pytest.raises(ConfigError, match="parameters of no shape yet"):
        subject(lazy)
    with pytest.raises(ConfigError, match="on the device meta"):
        subject(make().to("meta"))
    several = nn.DataParallel(make())
    several.device_ids = [0, 1]
    with pytest.raises(ConfigError, match=r"give the model within, \.module"):
        subject(several)
