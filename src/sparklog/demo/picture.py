"""The picture of the tour: a year of delays, by day and hour, at each airport."""

from __future__ import annotations

import logging
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparklog.demo.summary import AIRPORTS

if TYPE_CHECKING:
    import pyarrow as pa

YEAR = 2013
HOURS = range(5, 24)
WORST = 90
"""Minutes at which the colours end."""


def draw(by_hour: pa.Table, path: Path) -> None:
    """Write a PNG: a heat map an airport (day across, hour of scheduled departure up), and its mean by hour beside."""
    import matplotlib as mpl

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        len(AIRPORTS), 2, figsize=(14, 9), sharey=True, width_ratios=(6, 1), layout="constrained"
    )
    last = None
    hourly: list[Any] = []
    for (left, right), (code, name) in zip(axes, AIRPORTS.items(), strict=True):
        delay, weight = _grids(by_hour, code)
        last = _heat_map(left, delay, f"{name} ({code})")
        hourly.append(_hourly_mean(right, delay, weight))
    for right in axes[:, 1]:
        right.set_xlim(0, max(np.nanmax(each, initial=1) for each in hourly) * 1.1)
    axes[0, 1].set_title("mean by hour", loc="left", fontsize=11)
    axes[-1, 1].set_xlabel("minutes")
    figure.supylabel("scheduled departure, local hour", fontsize=11)
    figure.suptitle(
        f"Late out of New York: mean departure delay of every hour of {YEAR}", x=0.01, ha="left", fontsize=15
    )
    figure.colorbar(last, ax=axes[:, 0], label="mean departure delay, minutes", extend="both", pad=0.01, aspect=40)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _grids(by_hour: pa.Table, origin: str) -> tuple[Any, Any]:
    """Mean delay and flights, hour by day; NaN and 0 where nothing left."""
    columns = {name: by_hour[name].to_numpy() for name in ("day", "hour", "mean_delay", "departed")}
    origins = np.array(by_hour["origin"].to_pylist())
    here = (origins == origin) & (columns["hour"] >= HOURS.start)
    where = columns["hour"][here] - HOURS.start, columns["day"][here] - 1
    delay, weight = np.full((len(HOURS), 365), np.nan), np.zeros((len(HOURS), 365))
    delay[where], weight[where] = columns["mean_delay"][here], columns["departed"][here]
    return delay, weight


def _heat_map(axes: Any, delay: Any, title: str) -> Any:
    from matplotlib.colors import TwoSlopeNorm

    image = axes.imshow(
        delay,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        cmap="RdYlBu_r",
        norm=TwoSlopeNorm(vmin=-10, vcenter=10, vmax=WORST),
        extent=(0, 365, HOURS.start - 0.5, HOURS.stop - 0.5),
    )
    starts = [date(YEAR, month, 1) for month in range(1, 13)]
    axes.set_xticks([day.timetuple().tm_yday - 1 for day in starts], [f"{day:%b}" for day in starts], ha="left")
    axes.set_yticks(range(6, 24, 3), [f"{hour}:00" for hour in range(6, 24, 3)])
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_facecolor("#e8e8e8")
    return image


def _hourly_mean(axes: Any, delay: Any, weight: Any) -> Any:
    total = weight.sum(axis=1)
    mean = np.nansum(delay * weight, axis=1) / np.where(total > 0, total, np.nan)
    axes.barh(list(HOURS), mean, color="#b2593b", height=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.axvline(0, color="black", linewidth=0.6)
    return mean
