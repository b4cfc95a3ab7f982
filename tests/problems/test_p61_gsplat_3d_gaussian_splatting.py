"""Problem 61, Gaussian splatting: every Gaussian projected for every camera in plain arithmetic."""

import math
from functools import partial

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs


def turn(q: list[float], v: list[float]) -> list[float]:
    """v turned by the quaternion q: the vector part of q v q*."""

    def times(a: list[float], b: list[float]) -> list[float]:
        return [
            a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
            a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
            a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
            a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
        ]

    norm = math.sqrt(sum(x * x for x in q))
    q = [x / norm for x in q]
    return times(times(q, [0.0, *v]), [q[0], -q[1], -q[2], -q[3]])[1:]


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def project(a: Arguments, i: int, view: list[list[float]], K: list[list[float]]) -> list[float] | None:
    """Radii, centre, depth and conic of one Gaussian for one camera, or None if it is not seen."""
    mean = a["means"][i]
    x, y, depth = (dot(row[:3], mean) + row[3] for row in view[:3])
    if not a["near_plane"] < depth < a["far_plane"]:
        return None
    centre, gradient = [], []
    for axis, (ratio, extent) in enumerate(((x / depth, a["image_width"]), (y / depth, a["image_height"]))):
        f, c = K[axis][axis], K[axis][2]
        centre.append(f * ratio + c)
        slack = 0.3 * 0.5 * extent / f
        near_image = min(max(ratio, -(c / f + slack)), (extent - c) / f + slack)
        # d(pixel)/d(world point) = f / depth * (row of the view - ratio * row of depth)
        gradient.append([f / depth * (p - near_image * q) for p, q in zip(view[axis][:3], view[2][:3], strict=True)])
    u, v, uv = a["eps2d"], a["eps2d"], 0.0
    for k in range(3):
        axis_k = turn(a["quats"][i], [float(k == n) for n in range(3)])
        s = a["scales"][i][k]
        du, dv = s * dot(gradient[0], axis_k), s * dot(gradient[1], axis_k)
        u, v, uv = u + du * du, v + dv * dv, uv + du * dv
    radii = [math.ceil(3.33 * math.sqrt(u)), math.ceil(3.33 * math.sqrt(v))]
    for p, r, extent in zip(centre, radii, (a["image_width"], a["image_height"]), strict=True):
        if p + r <= 0 or p - r >= extent:
            return None
    det = u * v - uv * uv
    return [*radii, *centre, depth, v / det, -uv / det, u / det]


def gaussian_splatting(ranks: list[Arguments], mistake: bool = False) -> list[Outputs]:
    """Mistake: ids count from the source's first Gaussian, which gsplat should perhaps do and does not."""
    results = []
    counts = [len(a["means"]) for a in ranks]
    numbers = [{k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in a.items()} for a in ranks]
    for r, viewer in enumerate(numbers):
        ids, rows, copies = [], [], []
        for s, a in enumerate(numbers):
            for c, (view, K) in enumerate(zip(viewer["viewmats"], viewer["Ks"], strict=True)):
                for i in range(counts[s]):
                    row = project(a, i, view, K)
                    if row is not None:
                        ids.append([c, i + sum(counts[: s if mistake else r])])
                        rows.append(row)
                        copies.append([a["opacities"][i], *a["colors"][i]])
        table, copied = (torch.tensor(x, dtype=torch.float64) for x in (rows, copies))
        camera, gaussian = torch.tensor(ids).T
        radii = table[:, :2].to(torch.int32)
        results.append([camera, gaussian, radii, table[:, 2:4], table[:, 4], table[:, 5:], copied[:, 0], copied[:, 1:]])
    seen = sum(len(own[0]) for own in results) / (sum(counts) * sum(len(a["viewmats"]) for a in ranks))
    assert 0.03 < seen < 0.7
    return results


class TestModel(ModelTests):
    spec = Spec(
        61,
        gaussian_splatting,
        dtypes=("fp32",),
        honest=0.7,
        widened_sizes=("odd",),
        exactness=1e-10,
        large_bytes=12e9,
        more_cases=((1, "odd", "fp32"),),
        mistakes={"ids counted from the source's first": partial(gaussian_splatting, mistake=True)},
        mistake_cases=[(w, size, dtype) for w in (2, 4) for size in ("tiny", "odd") for dtype in ("fp32",)],
        silent_raises=True,
    )
