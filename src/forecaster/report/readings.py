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
        "where the interval reaches 0 it is not shown that the forecast needs the head. Replacing by zero overstates "
        "redundant heads.",
        "Absent: no ablation of this run is a number.",
    ),
    "redundancy": Reading(
        "Which heads do the same",
        "Every pair of heads at the last bar, those alike beside each other: the Jensen-Shannon distance of where they "
        "look (0 the same bars, 1 none in common), or the linear CKA of what they write (1 the same up to turning and "
        "scaling). The tree joins the most alike first; a short branch is a pair of which one may be enough.",
        "Absent: fewer than three heads are left to compare.",
    ),
    "pruning": Reading(
        "Pruning curve",
        "What each target loses on test as heads are removed for good, those first that matter least by importance, "
        "gradient (both ranked on validation) or stable rank; the band holds ten random orders. An order is worth "
        "following where its line lies below the band. The dotted line is one hundredth of skill.",
        "Absent: no loss of this run's pruning curve is a number.",
    ),
    "roles": Reading(
        "Heads over the years",
        "What each head was worth (rise of the loss with its output at its training mean), or its kappa, year by year "
        "over all windows: blue is above 0, orange below, and a ring is where a change of level is placed (5 % false "
        "discoveries over all that were tested). Dotted lines part training, validation and test: rises on training "
        "dates flatter.",
        "Absent: no head had a label or a target with skill that could be followed over the years.",
    ),
    "strip": Reading(
        "A day's attention",
        "How far each head's attention by lag lies from its own average on a day (Jensen-Shannon distance, 0 to 1), "
        "less what is usual for it: blue farther off than usual, orange nearer, under the price. A head that looks at "
        "fixed lags is pale throughout; a stretch of one colour is a stretch in which it looked elsewhere.",
        "Absent: attention_distance.csv holds no number.",
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
    "network. The verdict no different means that the test could not tell them apart, not that they are equal."
)
