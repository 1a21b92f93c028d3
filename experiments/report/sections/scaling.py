"""Several devices compared with one."""

from experiments.analysis import conclusion
from experiments.analysis.efficiency import ScalingPoint, curve_key, efficiencies
from experiments.records.formatting import accelerator_label
from experiments.report.section import Axis, Figure, PageRecords, Section
from experiments.report.selection import group_by
from experiments.report.traces import hover_text, scatter

_NAMES = ("model", "strategy", "precision", "mesh", "microbatches")  # settings in a curve's name


def devices(page: PageRecords) -> Section | None:
    """Efficiency against the number of devices; solid for weak scaling, dashed for strong."""
    points = efficiencies(page.records)
    if not points:
        return None
    groups = group_by(points, lambda point: (curve_key(point.record), point.scaling))
    figure = Figure(
        "Scaling efficiency",
        [_trace(group, page) for group in groups],
        Axis("devices"),
        Axis("efficiency: images per second and device, relative to one device"),
    )
    return Section("Several devices", conclusion("scaling", page.records), figures=[figure])


def _trace(points: list[ScalingPoint], page: PageRecords) -> dict:
    first = points[0]
    settings = first.record.settings
    names = [str(settings[name]) for name in _NAMES if name in settings]
    errors = {
        "array": [0.0, *(point.high - point.efficiency for point in points)],
        "arrayminus": [0.0, *(point.efficiency - point.low for point in points)],
    }
    return scatter(
        ", ".join([accelerator_label(first.record), *names, first.scaling]),
        [1, *(point.devices for point in points)],
        [1.0, *(point.efficiency for point in points)],
        page.color(first.record),
        hover=["one device", *(hover_text(point.record) for point in points)],
        dash="solid" if first.scaling == "weak" else "dash",
        options={"error_y": errors},
    )
