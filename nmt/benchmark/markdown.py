"""Summaries and tables of measurements: medians with their range, and ratios."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.comparison.tables import align_columns

LABELS = {
    "train_tokens_per_second": "training, target tokens/s",
    "loader_share": "share of waiting for batches",
    "memory_mib": "memory of training, MiB",
    "greedy_sentences_per_second": "greedy, sentences/s",
    "beam_sentences_per_second": "beam, sentences/s",
    "startup_seconds": "start to first step, s",
}


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Median, range and values of repeated measurements."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "values": list(values),
    }


def paired_ratio(values: Sequence[float], baseline: Sequence[float]) -> dict[str, Any]:
    """Summary of the ratios to a baseline in the same turns."""
    return summary([value / base for value, base in zip(values, baseline, strict=True)])


def measurement_tables(result: dict[str, Any]) -> str:
    """All measurements as tables: the values of the variants, and their ratios to the first variant."""
    variants = result["variants"]
    sections = [_facts(result), _measures(variants)]
    if len(variants) > 1:
        sections.append(_ratios(variants))
    return "\n\n".join(sections)


def ratio_table(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Ratios after / before of the medians of two results, for the variants that both have.

    The range of a ratio is from min(after) / max(before) to max(after) / min(before). Raises ValueError if no variant
    is in both.
    """
    common = [name for name in after["variants"] if name in before["variants"]]
    if not common:
        raise ValueError(
            f"no variant is in both: {', '.join(before['variants'])}; {', '.join(after['variants'])}"
        )
    rows = []
    for name in common:
        old, new = (result["variants"][name]["measures"] for result in (before, after))
        for key in [key for key in LABELS if key in old and key in new]:
            ratio = extreme_ratio(new[key], old[key])
            values = [_figure(key, old[key]), _figure(key, new[key]), spread(ratio, ".3f")]
            rows.append([name, LABELS[key], *values])
    notes = [
        f"{key}: {before['machine'].get(key)} before, {value} after"
        for key, value in after["machine"].items()
        if before["machine"].get(key) != value
    ]
    return "\n".join([align_columns([["", "", "before", "after", "ratio"], *rows]), *notes])


def extreme_ratio(figure: Mapping[str, float], baseline: Mapping[str, float]) -> dict[str, float]:
    """The ratio of two medians, with the smallest and largest ratio within both ranges."""
    return {
        "median": figure["median"] / baseline["median"],
        "min": figure["min"] / baseline["max"],
        "max": figure["max"] / baseline["min"],
    }


def _facts(result: dict[str, Any]) -> str:
    settings, data = result["settings"], result["data"]
    padding, machine = data["padding"], result["machine"]
    return (
        f"{machine['gpu'] or machine['cpu']}, {machine['num_threads']} of {machine['num_cores']} cores "
        f"(load {machine['load']}), torch {machine['torch']}, {settings['precision']}\n"
        f"{data['num_batches']} batches a turn, of at most {settings['data']['max_tokens']:,} tokens, "
        f"{data['num_target_tokens']:,} target tokens; padding {padding['source']:.1%} of the source, "
        f"{padding['target']:.1%} of the target, {padding['both']:.1%} in all"
    )


def _measures(variants: Mapping[str, Any]) -> str:
    keys = [key for key in LABELS if any(key in each["measures"] for each in variants.values())]
    rows = [
        [LABELS[key], *(_figure(key, each["measures"].get(key)) for each in variants.values())]
        for key in keys
    ]
    rows.append(["parameters", *(f"{each['num_parameters']:,}" for each in variants.values())])
    return align_columns([["", *variants], *rows])


def _ratios(variants: Mapping[str, Any]) -> str:
    first, *others = variants
    rows = []
    for key, base in variants[first]["measures"].items():
        figures = [variants[name]["measures"].get(key) for name in others]
        ratios = [each and spread(paired_ratio(each["values"], base["values"]), ".3f") for each in figures]
        rows.append([LABELS[key], *(each or "" for each in ratios)])
    return align_columns([[f"ratio to {first}", *others], *rows])


def _figure(key: str, figure: Mapping[str, float] | None) -> str:
    if figure is None:
        return ""
    if key == "loader_share":
        return spread(figure, ".1%")
    return spread(figure, ",.0f" if figure["median"] >= 1000 else ".3g")


def spread(figure: Mapping[str, float], form: str) -> str:
    """`12.3 (12.1–12.9)`; without the range if all values are equal."""
    median, low, high = (format(figure[key], form) for key in ("median", "min", "max"))
    return median if figure["min"] == figure["max"] else f"{median} ({low}–{high})"
