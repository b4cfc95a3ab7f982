"""61: who is seen is one pass by torch.compile, and the rows that travel are another; both project, and write nothing between.
One message, in which ids are numbers of one rank's Gaussians: the receiver adds its own first."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.compiled import compiled_for_any_length

Components = list[torch.Tensor]


def projected(gaussian: Components, camera: Components, bounds: Components) -> Components:
    """Depth, both coordinates of the centre and three entries of the covariance, of any shapes that fit each other."""
    means, (w, x, y, z), scales = gaussian[:3], gaussian[3:7], gaussian[7:]
    width, height, eps2d = bounds[:3]
    length = (w * w + x * x + y * y + z * z).sqrt().clamp(min=1e-12)
    w, x, y, z = w / length, x / length, y / length, z / length
    turned = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    view, K = [camera[i : i + 4] for i in (0, 4, 8)], camera[16:]
    point = [row[0] * means[0] + row[1] * means[1] + row[2] * means[2] + row[3] for row in view]
    depth, across, centre = point[2], [], []
    for axis, extent in ((0, width), (1, height)):
        focal, middle = K[4 * axis], K[3 * axis + 2]
        slack = 0.15 * extent / focal
        limited = torch.maximum(point[axis] / depth, -(middle / focal + slack))
        limited = torch.minimum(limited, (extent - middle) / focal + slack)
        row = [(view[axis][i] - limited * view[2][i]) * (focal / depth) for i in range(3)]
        across.append([
            (row[0] * turned[0][j] + row[1] * turned[1][j] + row[2] * turned[2][j]) * scales[j] for j in range(3)
        ])  # fmt: skip
        pixel = K[3 * axis] * point[0] + K[3 * axis + 1] * point[1] + K[3 * axis + 2] * depth
        centre.append(pixel / depth)

    def product(a: Components, b: Components) -> torch.Tensor:
        return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]

    spread = [product(one, one) + eps2d for one in across]
    return [depth, *centre, *spread, product(*across)]


def radius(spread: torch.Tensor) -> torch.Tensor:
    return (3.33 * spread.sqrt()).ceil()


@compiled_for_any_length(0)
def seen_by(gaussians: torch.Tensor, cameras: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
    """(cameras, Gaussians)."""
    limits = list(bounds.unbind())
    camera = [one[:, None] for one in cameras.unbind(1)]
    depth, *rest = projected(list(gaussians.unbind(1)), camera, limits)
    seen = (depth > limits[3]) & (depth < limits[4])
    for centre, spread, extent in zip(rest[:2], rest[2:4], limits[:2], strict=True):
        reach = radius(spread)
        seen = seen & (reach > 0) & (centre + reach > 0) & (centre - reach < extent)
    return seen


@compiled_for_any_length(0, 1, 2)
def rows_of(
    which: torch.Tensor, gaussians: torch.Tensor, others: torch.Tensor, cameras: torch.Tensor, bounds: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers, and radii, of the pairs of a camera and a Gaussian in `which`."""
    camera, kept = which.unbind(1)
    values, limits = list(gaussians[kept].unbind(1)), list(bounds.unbind())
    depth, x, y, wide, narrow, mixed = projected(values, list(cameras[camera].unbind(1)), limits)
    determinant = (wide * narrow - mixed * mixed).clamp(min=1e-10)
    numbers = torch.stack([x, y, depth, narrow / determinant, -mixed / determinant, wide / determinant], dim=1)
    return torch.cat([numbers, others[kept]], dim=1), torch.stack([radius(wide), radius(narrow)], dim=1).to(torch.int32)


def alternative(
    means: torch.Tensor,
    quats: torch.Tensor,
    scales: torch.Tensor,
    opacities: torch.Tensor,
    colors: torch.Tensor,
    viewmats: torch.Tensor,
    Ks: torch.Tensor,
    image_width: int,
    image_height: int,
    eps2d: float = 0.3,
    near_plane: float = 0.01,
    far_plane: float = 1e10,
    camera_model: str = "pinhole",
) -> tuple[torch.Tensor, ...]:
    rank, world_size, device, dtype = dist.get_rank(), dist.get_world_size(), means.device, means.dtype
    count, cameras = means.shape[0], viewmats.shape[0]
    table = torch.empty(world_size, dtype=torch.int64, device=device)
    dist.all_gather_into_tensor(table, torch.tensor([count], device=device))
    own_cameras = torch.cat([viewmats.reshape(cameras, 16), Ks.reshape(cameras, 9)], dim=1)
    everybody = means.new_empty((world_size * cameras, 25))
    dist.all_gather_into_tensor(everybody, own_cameras)
    bounds = torch.tensor([image_width, image_height, eps2d, near_plane, far_plane], dtype=dtype, device=device)
    gaussians, others = torch.cat([means, quats, scales], dim=1), torch.cat([opacities[:, None], colors], dim=1)
    seen = seen_by(gaussians, everybody, bounds)

    counts = torch.empty(2, world_size, dtype=torch.int64, device=device)
    counts[0] = seen.view(world_size, -1).sum(dim=1)
    dist.all_to_all_single(counts[1], counts[0])
    which = seen.nonzero()
    send, receive = counts.tolist()
    floats, radii = rows_of(which, gaussians, others, everybody, bounds)
    ids = torch.stack([which[:, 0] % cameras, which[:, 1]], dim=1).to(torch.int32)
    message = torch.cat([floats.view(torch.int32), radii, ids], dim=1)
    arrived = message.new_empty((sum(receive), message.shape[1]))
    dist.all_to_all_single(arrived, message, receive, send)

    numbers, radii, camera, kept = arrived.split([message.shape[1] - 4, 2, 1, 1], dim=1)
    channels = colors.shape[1]
    centres, depths, conics, own_opacities, own_colors = numbers.view(dtype).split([2, 1, 3, 1, channels], dim=1)
    first = table[:rank].sum()  # the destination's base, as in gsplat
    return (
        camera[:, 0].to(torch.int64), kept[:, 0].to(torch.int64) + first, radii.contiguous(), centres.contiguous(),
        depths[:, 0].contiguous(), conics.contiguous(), own_opacities[:, 0].contiguous(), own_colors.contiguous(),
    )  # fmt: skip


PROBLEM = replace(get(61), id=6101, name="two_passes", baseline=alternative)
