"""Summaries and tables of measurements: medians with their range, ratios, and the points of growth curves."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.benchmark.growth import exponents

LABELS = {
    "train_tokens_per_second": "training, target tokens/s",
    "efficiency": "efficiency",
    "loader_share": "share of waiting for batches",
    "memory_mib": "memory of training, MiB",
    "greedy_sentences_per_second": "greedy, sentences/s",
    "beam_sentences_per_second": "beam, sentences/s",
    "startup_seconds": "start to first step, s",
}

AXES = {
    "lengths": "pieces of either side",
    "widths": "model.size",
    "vocabularies": "pieces in the vocabulary",
    "corpora": "pairs",
}
COSTS = ("target pieces/s", "memory, MiB")
COSTS_OF_CORPORA = ("pairs prepared/s", "streamed start: memory, MiB", "streamed start, s")


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
            values = [_figure(key, old[key]), _figure(key, new[key]), _spread(ratio, ".3f")]
            rows.append([name, LABELS[key], *values])
    notes = [
        f"{key}: {before['machine'].get(key)} before, {value} after"
        for key, value in after["machine"].items()
        if before["machine"].get(key) != value
    ]
    return "\n".join([_table(["", "", "before", "after", "ratio"], rows), *notes])


def extreme_ratio(figure: Mapping[str, float], baseline: Mapping[str, float]) -> dict[str, float]:
    """The ratio of two medians, with the smallest and largest ratio within both ranges."""
    return {
        "median": figure["median"] / baseline["median"],
        "min": figure["min"] / baseline["max"],
        "max": figure["max"] / baseline["min"],
    }


def corpora_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Two tables with a row per corpus: starts of training (first, cached, streamed), and the batches of an epoch."""
    starts, batches = [], []
    for each in results:
        pairs, first = f"{each['num_pairs']:,}", each["first"]
        prepared = f"{each['prepared_pairs_per_second']:,.0f}/s"
        starts.append(
            [pairs, _mib(each["text_bytes"]), f"{first['seconds']:.1f} s", prepared, _mib(first["peak"])]
        )
        for start in (each["cached"], each["streamed"]):
            starts[-1] += [f"{start['seconds']:.1f} s", _mib(start["peak"])]
        dealt, loaded = f"{each['deal_seconds']:.2f} s", f"{each['load_pairs_per_second']:,.0f}/s"
        batches.append(
            [pairs, f"{each['num_batches']:,}", dealt, f"{each['sampler_bytes_per_pair']:.0f} B", loaded]
        )
    head = ["pairs", "text", "first start", "prepared", "memory"]
    head += ["cached start", "memory", "streamed start", "memory"]
    columns = ["pairs", "batches", "dealt in", "memory a pair", "loaded pairs"]
    return f"{_table(head, starts)}\n\n{_table(columns, batches)}"


def growth_tables(result: Mapping[str, Any]) -> str:
    """A table per axis: the costs at every value, and the exponent of the seconds per item from the previous value."""
    sections = [_machine(result)]
    for axis, points in result["growth"].items():
        header, *rows = growth_rows(axis, points)
        sections.append(_table(header, rows))
    return "\n\n".join(sections)


def growth_rows(axis: str, points: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The header and rows of the table of an axis."""
    slopes = exponents([(each["value"], 1 / each["per_second"]["median"]) for each in points])
    costs = COSTS_OF_CORPORA if axis == "corpora" else COSTS
    rows = [[AXES[axis], *costs, "exponent of seconds"]]
    for each, slope in zip(points, ["", *(f"{slope:+.2f}" for slope in slopes)], strict=True):
        start = [f"{each['start_seconds']:.1f}"] if axis == "corpora" else []
        memory = _mib(each["memory_bytes"]).removesuffix(" MiB")
        rows.append([f"{each['value']:,}", _figure("", each["per_second"]), memory, *start, slope])
    return rows


def growth_curves(
    axes: Mapping[str, Sequence[Mapping[str, Any]]],
) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """The points (value, cost) of every curve, by axis label and name of the cost."""
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for axis, points in axes.items():
        names = COSTS_OF_CORPORA if axis == "corpora" else COSTS
        panel = curves[AXES[axis]] = {name: [] for name in names}
        for each in points:
            memory = each["memory_bytes"] and each["memory_bytes"] / 2**20
            costs = (each["per_second"]["median"], memory, each.get("start_seconds"))
            for name, cost in zip(names, costs, strict=False):
                if cost is not None:
                    panel[name].append((each["value"], cost))
    return curves


def _mib(num_bytes: int | None) -> str:
    return "" if num_bytes is None else f"{num_bytes / 2**20:,.0f} MiB"


def _machine(result: Mapping[str, Any]) -> str:
    machine = result["machine"]
    return (
        f"{machine['gpu'] or machine['cpu']}, {machine['num_threads']} of {machine['num_cores']} cores "
        f"(load {machine['load']}), torch {machine['torch']}, {result['settings']['precision']}"
    )


def _facts(result: dict[str, Any]) -> str:
    settings, data = result["settings"], result["data"]
    padding = data["padding"]
    return (
        f"{_machine(result)}\n"
        f"{data['num_batches']} batches a turn, of at most {settings['data']['max_tokens']:,} tokens, "
        f"{data['num_target_tokens']:,} target tokens; padding {padding['source']:.1%} of the source, "
        f"{padding['target']:.1%} of the target, {padding['both']:.1%} in all\n"
        f"{data['num_pairs']:,} pairs prepared at {data['prepare_pairs_per_second']:,.0f}/s "
        f"(reading {data['read_pairs_per_second']:,.0f}/s, pieces {data['split_pairs_per_second']:,.0f}/s), "
        f"vocabulary in {data['vocabulary_seconds']:.1f} s"
    )


def _measures(variants: Mapping[str, Any]) -> str:
    keys = [key for key in LABELS if any(key in each["measures"] for each in variants.values())]
    rows = [
        [LABELS[key], *(_figure(key, each["measures"].get(key)) for each in variants.values())]
        for key in keys
    ]
    rows.append(["parameters", *(f"{each['num_parameters']:,}" for each in variants.values())])
    return _table(["", *variants], rows)


def _ratios(variants: Mapping[str, Any]) -> str:
    first, *others = variants
    rows = []
    for key, base in variants[first]["measures"].items():
        figures = [variants[name]["measures"].get(key) for name in others]
        ratios = [each and _spread(paired_ratio(each["values"], base["values"]), ".3f") for each in figures]
        rows.append([LABELS[key], *(each or "" for each in ratios)])
    return _table([f"ratio to {first}", *others], rows)


def _figure(key: str, figure: Mapping[str, float] | None) -> str:
    if figure is None:
        return ""
    if key in ("efficiency", "loader_share"):
        return _spread(figure, ".1%")
    return _spread(figure, ",.0f" if figure["median"] >= 1000 else ".3g")


def _spread(figure: Mapping[str, float], form: str) -> str:
    """`12.3 (12.1–12.9)`; without the range if all values are equal."""
    median, low, high = (format(figure[key], form) for key in ("median", "min", "max"))
    return median if figure["min"] == figure["max"] else f"{median} ({low}–{high})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A text table with padded columns: the first left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (head, *rows)
    )
