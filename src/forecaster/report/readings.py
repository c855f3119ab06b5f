"""How to read each picture: its title, what it shows and what chance is, and what to say where it cannot be drawn."""

from typing import NamedTuple


class Reading(NamedTuple):
    """The words around one picture."""

    title: str
    words: str
    empty: str


READINGS = {
    "r2": Reading(
        "r2 of every model",
        "Skill on the test part with 95 % intervals: the dotted line at 0 is a forecast that knows only the mean, "
        "right of it is skill. A model far to the left of the others stands at the edge with its value (◂).",
        "Absent: no r2 of this run is a number.",
    ),
    "forecast": Reading(
        "Forecast against actual",
        "The trained network one step ahead over the test part: eight of ten outcomes should fall into the band; a "
        "flat mean is what a forecast without skill looks like, the band is then all it says.",
        "Absent: this run holds no forecast of the trained network one step ahead.",
    ),
    "coverage": Reading(
        "Calibration",
        "Share of outcomes inside each model's 50 % (circle), 80 % (square) and 90 % (diamond) band, with 95 % "
        "intervals: an honest model stands on the three dotted lines; left of its line a band is too narrow, right of "
        "it too wide.",
        "Absent: no coverage of this run is a number.",
    ),
    "head-map": Reading(
        "Head by head, probe by probe",
        "kappa at the window's last bar, layer by head: 0 is chance, 1 is all attention on the bars that the probe "
        "asks about. A dot marks a pattern, a dot in a ring a functional head; the menu turns to norm-weighted "
        "attention.",
        "Absent: no kappa of this run is a number.",
    ),
    "lags": Reading(
        "Lag profiles",
        "Attention of the last bar on each lag, mean and 95 % interval: the dotted line is uniform attention, which is "
        "chance; a grey band holds 95 % of the heads of untrained networks. Ticks are multiples of the week: a spike "
        "there, or one bar before it (a week before the date that is forecast), is weekly; mass at the left end is "
        "recency.",
        "Absent: lag_profiles.csv holds no number.",
    ),
    "ablation": Reading(
        "Ablation",
        "Rise in the test loss when one head's output is replaced by its training mean, with its 95 % interval: "
        "where the interval reaches 0 the forecast can do without the head. Replacing by zero overstates redundant "
        "heads.",
        "Absent: no ablation of this run is a number.",
    ),
    "history": Reading(
        "Loss by epoch",
        "Mean loss by epoch: the ring is the epoch of least validation loss, whose weights made everything on this "
        "page; training falling while validation rises is overfitting.",
        "Absent: no epoch was finished.",
    ),
}

SCORES = (
    "Every model forecasts the same rows. Under each score stands its 95 % interval; the best value of a column is "
    "bold, whoever holds it. ↑ higher is better, ↓ lower is better; coverage 80 should be 0.800, an mz slope 1. The "
    "verdict is that of the test on squared error."
)
TESTS = (
    "Diebold-Mariano tests of the trained network against each baseline, two-sided at 5 %; a negative DM favours the "
    "network. What is called no different may differ by chance alone."
)
