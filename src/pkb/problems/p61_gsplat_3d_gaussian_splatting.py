"""Projection of 3D Gaussians to the cameras of all ranks: each splat travels to the rank whose camera sees it.

gsplat's distributed rasterization (packed), up to but not including the rasterization of tiles. Gaussians and cameras
are both sharded: rank r holds n_r Gaussians and C cameras (C is the same everywhere). Cameras are gathered; each rank
projects its Gaussians for all W * C cameras, drops what a camera does not see, and sends the rest to the camera's
owner. A rank returns, ordered by source rank, then its own camera, then Gaussian: camera ids (own numbering), Gaussian
ids, radii in pixels (int32), centres, depths, inverse covariances (conics), opacities and colours. As in gsplat, a
Gaussian's id is its number at the source plus the number of Gaussians on the ranks before the *destination*.

A splat is kept if near < depth < far and its box of radius ceil(3.33 sigma) touches the image, all bounds strict. How
many are kept differs from rank to rank, and may be none. A good kernel projects, culls and packs in one pass, counts
before it writes, and puts each row directly into its final place at the owner; nobody needs the covariances in memory.

Whether a splat is kept, and its radius, depend on comparisons. Inputs are drawn so that none of them is near a tie for
any camera, and a float32 computation in any order gives the same rows.
"""

import math
import random

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Exact, NormGate
from pkb.problems.draw import Arguments, Draw, PlainChoices
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # n: Gaussians of a rank, on average
    "tiny": {"n": 150, "cameras": 1, "width": 64, "height": 48, "channels": 3},
    "paper": {"n": 1024, "cameras": 1, "width": 512, "height": 512, "channels": 3},
    "real": {"n": 1_000_000, "cameras": 1, "width": 1920, "height": 1080, "channels": 3},  # a city, 8M Gaussians
    "odd": {"n": 83, "cameras": 2, "width": 97, "height": 61, "channels": 5},
}
SCENE = 2.5  # half the side of the cube that holds the Gaussians; cameras stand in it and outside, looking inwards
ATTEMPTS = 4
CLEARANCE = 1e-4
"""How far every comparison stays from a tie, relative to what is compared: float32 arithmetic errs by 1e-6."""


def visible_share(size: Size) -> float:
    """Of all Gaussians, what a camera sees on average. Measured over 120 cameras: 0.278 for a square image, 0.337 for 4 : 3,
    0.365 for 97 x 61 and 0.376 for 16 : 9; between two cameras it differs by 0.055."""
    aspect = max(size["width"], size["height"]) / min(size["width"], size["height"])
    return 0.275 + 0.165 * math.log(aspect)


def draw_cameras(size: Size, source: random.Random) -> tuple[list[list[list[float]]], list[list[list[float]]]]:
    """Views and intrinsics of one rank's cameras, each at a random place, looking past the centre of the scene."""
    if isinstance(source, PlainChoices):
        width, height = size["width"], size["height"]
        length = 0.8 * min(width, height)
        view = [[float(i == j) for j in range(4)] for i in range(4)]
        one = [[length, 0.0, width / 2], [0.0, length, height / 2], [0.0, 0.0, 1.0]]
        return [view] * size["cameras"], [one] * size["cameras"]

    def unit(v: list[float]) -> list[float]:
        norm = math.sqrt(sum(x * x for x in v))
        return [x / norm for x in v]

    def cross(a: list[float], b: list[float]) -> list[float]:
        return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]

    views, intrinsics = [], []
    width, height = size["width"], size["height"]
    for _ in range(size["cameras"]):
        distance = source.uniform(1.5, 3.0)
        place = [distance * x for x in unit([source.gauss(0, 1) for _ in range(3)])]
        forward = unit([source.uniform(-0.5, 0.5) - x for x in place])
        right = unit(cross([source.gauss(0, 1) for _ in range(3)], forward))
        axes = [right, cross(forward, right), forward]
        views.append([[*axis, -sum(a * p for a, p in zip(axis, place, strict=True))] for axis in axes] + [[0, 0, 0, 1]])
        focal = [source.uniform(0.7, 0.9) * min(width, height) for _ in range(2)]
        centre = [source.uniform(0.45, 0.55) * width, source.uniform(0.45, 0.55) * height]
        intrinsics.append([[focal[0], 0.0, centre[0]], [0.0, focal[1], centre[1]], [0.0, 0.0, 1.0]])
    return views, intrinsics


def in_doubt(
    gaussians: dict[str, torch.Tensor],
    view: torch.Tensor,
    K: torch.Tensor,
    *,
    size: Size,
    eps2d: float,
    near: float,
    far: float,
) -> torch.Tensor:
    """Gaussians for which a comparison of this camera is near a tie, worked out in float64."""
    q = torch.nn.functional.normalize(gaussians["quats"].double(), dim=-1)
    w, xyz = q[:, :1], q[:, 1:]
    mean = gaussians["means"].double() @ view[:3, :3].T + view[:3, 3]
    depth = mean[:, 2]
    ratio = mean[:, :2] / depth[:, None]
    doubt = ((depth - near).abs() < CLEARANCE) | ((depth - far).abs() < CLEARANCE * far)
    touches = torch.ones_like(doubt)
    for axis, extent in ((0, size["width"]), (1, size["height"])):
        focal, centre = K[axis, axis], K[axis, 2]
        slack = 0.15 * extent / focal
        limited = ratio[:, axis].clamp(-centre / focal - slack, (extent - centre) / focal + slack)
        # The row of the Jacobian, turned into the Gaussian's own axes by the inverse of its quaternion.
        row = (view[axis, :3] - limited[:, None] * view[2, :3]) * (focal / depth)[:, None]
        turn = 2 * torch.linalg.cross(-xyz, row, dim=-1)
        row = row + w * turn + torch.linalg.cross(-xyz, turn, dim=-1)
        reach = 3.33 * ((row * gaussians["scales"].double()).square().sum(-1) + eps2d).sqrt()
        radius, pixel = reach.ceil(), ratio[:, axis] * focal + centre
        low, high = pixel + radius, extent - (pixel - radius)
        doubt |= (reach - reach.round()).abs() < CLEARANCE * (1 + reach)
        doubt |= torch.minimum(low.abs(), high.abs()) < CLEARANCE * (extent + pixel.abs())
        touches &= (low > -1) & (high > -1)
    # Where depth alone decides, or the other axis, doubts about the rest do not matter.
    seen = (depth > near - CLEARANCE) & (depth < far * (1 + CLEARANCE)) & touches
    return doubt & seen


def draw_gaussians(draw: Draw, count: int, attempt: int) -> dict[str, torch.Tensor]:
    means = draw.uniform(f"means {attempt}", (count, 3), -SCENE, SCENE)
    if draw.even:  # before cameras that all see all of them
        means = means.mul(0.3).add(torch.tensor([0.0, 0.0, 3.0], dtype=means.dtype, device=means.device))
    return {
        "means": means,
        "quats": draw.normal(f"quats {attempt}", (count, 4)),
        "scales": draw.uniform(f"scales {attempt}", (count, 3), 0.005, 0.05),
    }


def inputs(draw: Draw) -> Arguments:
    size, w = draw.size, draw.world_size
    count = max(1, round(size["n"] * draw.random("count").uniform(0.6, 1.4)))
    planes = draw.random("planes", key="all")
    eps2d, near, far = planes.uniform(0.2, 0.4), planes.uniform(0.2, 0.4), planes.uniform(3.5, 4.5)
    gaussians = draw_gaussians(draw, count, 0)
    cameras = [draw_cameras(size, draw.random("cameras", key=("rank", owner))) for owner in range(w)]
    views, intrinsics = (torch.tensor(x, dtype=draw.dtype, device=draw.device) for x in cameras[draw.rank])
    if draw.device.type != "meta":
        doubt = torch.ones(count, dtype=torch.bool, device=draw.device)
        for attempt in range(ATTEMPTS):
            fresh = draw_gaussians(draw, count, attempt)
            gaussians = {k: torch.where(doubt[:, None], fresh[k], old) for k, old in gaussians.items()}
            doubt = torch.zeros_like(doubt)
            for camera in cameras:
                rounded = [torch.tensor(x, dtype=draw.dtype, device=draw.device).double() for x in camera]
                for view, K in zip(*rounded, strict=True):
                    doubt |= in_doubt(gaussians, view, K, size=size, eps2d=eps2d, near=near, far=far)
        # What is still in doubt becomes a copy of the last Gaussian that is not.
        index = torch.arange(count, device=draw.device).masked_fill(doubt, -1)
        index = index.cummax(0).values.clamp(min=int((~doubt).int().argmax()))
        gaussians = {k: v[index] for k, v in gaussians.items()}
    return {
        **gaussians,
        "opacities": draw.uniform("opacities", (count,), 0.1, 0.9),
        "colors": draw.uniform("colors", (count, size["channels"]), 0, 1),
        "viewmats": views,
        "Ks": intrinsics,
        "image_width": size["width"],  # the sensor belongs to the size, and other cameras than pinholes raise
        "image_height": size["height"],
        "eps2d": eps2d,
        "near_plane": near,
        "far_plane": far,
        "camera_model": "pinhole",
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Smaller Gaussians, depths from 2 to 4, and planes that cull nothing. What would be near a tie stays as drawn."""
    ours = {name: value for name, value in drawn.items() if isinstance(value, torch.Tensor)}
    count = ours["means"].shape[0]
    sideways, depths = (draw.uniform(f"means {n}, published", (count, n), -0.75, 0.75) for n in (2, 1))
    scales, near, far = draw.uniform("scales, published", (count, 3), 0.0, 0.02), 0.01, 1e10
    fresh = {"means": torch.cat([sideways, depths / 0.75 + 3], 1), "quats": ours["quats"], "scales": scales}
    if draw.device.type != "meta":
        doubt = torch.zeros(count, dtype=torch.bool, device=draw.device)
        # The cameras of all ranks are alike.
        for view, K in zip(ours["viewmats"].double(), ours["Ks"].double(), strict=True):
            doubt |= in_doubt(fresh, view, K, size=draw.size, eps2d=0.3, near=near, far=far)
        fresh = {name: torch.where(doubt[:, None], ours[name], value) for name, value in fresh.items()}
    return {**fresh, "eps2d": 0.3, "near_plane": near, "far_plane": far}


def solution(
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
    if camera_model != "pinhole":
        raise ValueError(f"only pinhole cameras, not {camera_model!r}")
    if colors.dim() != 2 or colors.shape[0] != means.shape[0]:
        raise ValueError(f"colors {tuple(colors.shape)} for {means.shape[0]} Gaussians")
    world_size, device, dtype = dist.get_world_size(), means.device, means.dtype
    count, cameras, channels = means.shape[0], viewmats.shape[0], colors.shape[1]

    # How many Gaussians and cameras every rank has, then all cameras in rank order.
    shapes = torch.empty(world_size * 2, dtype=torch.int64, device=device)
    dist.all_gather_into_tensor(shapes, torch.tensor([count, cameras], device=device))
    gaussian_counts, camera_counts = shapes.view(world_size, 2).t().tolist()
    if set(camera_counts) != {cameras}:
        raise ValueError(f"every rank must have as many cameras, not {camera_counts}")
    own_cameras = torch.cat([viewmats.reshape(cameras, 16), Ks.reshape(cameras, 9)], dim=1).reshape(-1)
    all_cameras = torch.empty(world_size * cameras * 25, dtype=dtype, device=device)
    dist.all_gather_into_tensor(all_cameras, own_cameras)

    # Covariance of every Gaussian in the world: R S S' R'.
    w, x, y, z = torch.nn.functional.normalize(quats, dim=-1).unbind(-1)
    rotation = torch.stack(
        [
            1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
            2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
            2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
        ],
        dim=-1,
    ).view(count, 3, 3)  # fmt: skip
    axes = rotation * scales[:, None, :]
    covariance = axes @ axes.transpose(1, 2)

    floats, integers, send = [], [], [0] * world_size
    for camera, parameters in enumerate(all_cameras.view(-1, 25)):
        owner = camera // cameras
        view, K = parameters[:16].view(4, 4), parameters[16:].view(3, 3)
        fx, fy, cx, cy = K[0, 0], K[1, 1], K[0, 2], K[1, 2]
        mean = means @ view[:3, :3].t() + view[:3, 3]
        seen_covariance = view[:3, :3] @ covariance @ view[:3, :3].t()
        depth = mean[:, 2]

        # The perspective, linear around a centre that is kept near the image.
        slack_x, slack_y = 0.15 * image_width / fx, 0.15 * image_height / fy
        tx = depth * (mean[:, 0] / depth).clamp(-(cx / fx + slack_x), (image_width - cx) / fx + slack_x)
        ty = depth * (mean[:, 1] / depth).clamp(-(cy / fy + slack_y), (image_height - cy) / fy + slack_y)
        zero = torch.zeros_like(depth)
        jacobian = torch.stack(
            [fx / depth, zero, -fx * tx / depth**2, zero, fy / depth, -fy * ty / depth**2], dim=-1
        ).view(count, 2, 3)
        flat = jacobian @ seen_covariance @ jacobian.transpose(1, 2)
        c00, c01, c10, c11 = flat[:, 0, 0] + eps2d, flat[:, 0, 1], flat[:, 1, 0], flat[:, 1, 1] + eps2d
        determinant = (c00 * c11 - c01 * c10).clamp(min=1e-10)
        conic = torch.stack([c11 / determinant, -(c01 + c10) / 2 / determinant, c00 / determinant], dim=-1)
        centre = mean @ K[:2, :3].t() / depth[:, None]
        radius = torch.stack([(3.33 * c00.sqrt()).ceil(), (3.33 * c11.sqrt()).ceil()], dim=-1)

        # Comparisons with NaN (a Gaussian beside the camera) are false: it is not seen.
        low, high = centre + radius, centre - radius
        seen = (depth > near_plane) & (depth < far_plane) & (radius > 0).all(-1)
        seen &= (low[:, 0] > 0) & (high[:, 0] < image_width) & (low[:, 1] > 0) & (high[:, 1] < image_height)
        kept = seen.nonzero()[:, 0]
        row = [centre, depth[:, None], conic, opacities[:, None], colors]
        floats.append(torch.cat([part[kept] for part in row], dim=1))
        gaussian_id = kept + sum(gaussian_counts[:owner])  # the destination's base, as in gsplat
        camera_id = torch.full_like(kept, camera - owner * cameras)
        integers.append(torch.cat([torch.stack([camera_id, gaussian_id], dim=1), radius[kept].to(torch.int64)], dim=1))
        send[owner] += kept.numel()

    counts = torch.tensor(send, device=device)
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts)
    receive = arriving.tolist()
    own_floats = torch.empty((sum(receive), 7 + channels), dtype=dtype, device=device)
    own_integers = torch.empty((sum(receive), 4), dtype=torch.int64, device=device)
    dist.all_to_all_single(own_floats, torch.cat(floats), receive, send)
    dist.all_to_all_single(own_integers, torch.cat(integers), receive, send)
    camera_ids, gaussian_ids, radii = own_integers.split([1, 1, 2], dim=1)
    means2d, depths, conics, own_opacities, own_colors = own_floats.split([2, 1, 3, 1, channels], dim=1)
    return (
        camera_ids[:, 0].contiguous(), gaussian_ids[:, 0].contiguous(), radii.to(torch.int32), means2d.contiguous(),
        depths[:, 0].contiguous(), conics.contiguous(), own_opacities[:, 0].contiguous(), own_colors.contiguous(),
    )  # fmt: skip


def baseline(
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
    """All cameras at once and components apart: a few dozen elementwise kernels on long vectors, where the reference multiplies
    millions of 3 x 3 matrices for each camera. What is sent is only worked out for what is seen, and waits are few."""
    world_size, device, dtype = dist.get_world_size(), means.device, means.dtype
    count, cameras, channels = means.shape[0], viewmats.shape[0], colors.shape[1]
    table = torch.empty(world_size, dtype=torch.int64, device=device)
    dist.all_gather_into_tensor(table, torch.tensor([count], device=device))
    own_cameras = torch.cat([viewmats.reshape(cameras, 16), Ks.reshape(cameras, 9)], dim=1).reshape(-1)
    everybody = torch.empty(world_size * cameras * 25, dtype=dtype, device=device)
    dist.all_gather_into_tensor(everybody, own_cameras)
    views, intrinsics = everybody.view(-1, 25).split([16, 9], dim=1)
    turn, shift = views.view(-1, 4, 4)[:, :3].split([3, 1], dim=2)  # (cameras, 3, 3) and (cameras, 3, 1)
    K = intrinsics.view(-1, 3, 3)

    w, x, y, z = torch.nn.functional.normalize(quats, dim=-1).t().contiguous()
    axes = torch.stack([
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]).view(3, 3, count).mul_(scales.t())  # fmt: skip

    points = torch.baddbmm(shift, turn, means.t().expand(len(K), 3, count))  # (cameras, 3, Gaussians), as all below
    depth = points[:, 2]
    extent = torch.tensor([[image_width], [image_height]], dtype=dtype, device=device)
    focal, middle = K[:, :2, :2].diagonal(dim1=1, dim2=2)[..., None], K[:, :2, 2:]
    slack = 0.15 * extent / focal
    limited = (points[:, :2] / depth[:, None]).clamp(-(middle / focal + slack), (extent - middle) / focal + slack)
    rows = turn[:, :2, :, None] - limited[:, :, None] * turn[:, 2, None, :, None]  # (cameras, 2, 3, Gaussians)
    rows *= (focal / depth[:, None])[:, :, None]
    across = rows[:, :, :1] * axes[0]
    for axis in (1, 2):
        across.addcmul_(rows[:, :, axis : axis + 1], axes[axis])
    spread = across.square().sum(dim=2).add_(eps2d)  # (cameras, 2, Gaussians)
    mixed = (across[:, 0] * across[:, 1]).sum(dim=1)
    centre = torch.matmul(K[:, :2], points) / depth[:, None]
    radius = spread.sqrt().mul_(3.33).ceil_()
    seen = (depth > near_plane) & (depth < far_plane)
    seen &= ((radius > 0) & (centre + radius > 0) & (centre - radius < extent)).all(dim=1)

    counts = torch.empty(2, world_size, dtype=torch.int64, device=device)
    counts[0] = seen.view(world_size, -1).sum(dim=1)
    dist.all_to_all_single(counts[1], counts[0])
    camera, kept = seen.nonzero(as_tuple=True)
    send, receive = counts.tolist()
    wide, narrow, coupled = spread[camera, 0, kept], spread[camera, 1, kept], mixed[camera, kept]
    determinant = (wide * narrow - coupled * coupled).clamp_(min=1e-10)
    conic = torch.stack([narrow, -coupled, wide], dim=1).div_(determinant[:, None])
    floats = torch.cat(
        [centre[camera, :, kept], depth[camera, kept, None], conic, opacities[kept, None], colors[kept]], dim=1
    )
    owner = camera // cameras
    first = (table.cumsum(0) - table)[owner]  # the destination's base, as in gsplat
    ids = torch.stack([camera - owner * cameras, kept + first], dim=1)
    integers = torch.cat([ids, radius[camera, :, kept].to(torch.int64)], dim=1)
    own_floats, own_integers = floats.new_empty((sum(receive), 7 + channels)), integers.new_empty((sum(receive), 4))
    dist.all_to_all_single(own_floats, floats, receive, send)
    dist.all_to_all_single(own_integers, integers, receive, send)
    camera_ids, gaussian_ids, radii = own_integers.split([1, 1, 2], dim=1)
    means2d, depths, conics, own_opacities, own_colors = own_floats.split([2, 1, 3, 1, channels], dim=1)
    return (
        camera_ids[:, 0].contiguous(), gaussian_ids[:, 0].contiguous(), radii.to(torch.int32), means2d.contiguous(),
        depths[:, 0].contiguous(), conics.contiguous(), own_opacities[:, 0].contiguous(), own_colors.contiguous(),
    )  # fmt: skip


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, n, cameras, channels = world_size, size["n"], size["cameras"], size["channels"]
    visible = visible_share(size)
    rows = visible * n * w * cameras
    row = 8 + (7 + channels) * element_bytes + 8  # radii as int32, floats, two ids as int32
    travelling = rows * row + w * cameras * 25 * element_bytes
    return Cost.all_to_all(
        travelling,
        w,
        phases=2,
        flops=250 * n * w * cameras,
        hbm_bytes=n * (11 + channels) * element_bytes + rows * (row + 8),
        note=f"an average rank whose cameras see {visible:.0%} of all Gaussians; counts ride with the rows",
    )


EXACT = Exact()
PROBLEM = Problem(
    id=61,
    name="gsplat_3d_gaussian_splatting",
    source="gsplat, distributed rasterization without the tiles",
    taxonomy=Taxonomy(
        parallelism=("geometric",),
        layer="rendering",
        stage=("training-forward",),
        pattern=("all-gather", "all-to-all", "all-to-all-v"),
        system="vision",
        fusable="projection, culling, compaction",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    fixed={"camera_model": "the reference refuses all others"},
    reference=solution,
    baseline=baseline,
    tried=(Alternative("two passes by torch.compile: who is seen, and the rows that travel; one message"),),
    cost=cost,
    # Ids, order and radii are exact, opacities and colours copied; a conic divides by a difference of products.
    compare=(
        EXACT, EXACT, EXACT, NormGate(tau={torch.float32: 1e-5}), NormGate(tau={torch.float32: 1e-5}),
        NormGate(tau={torch.float32: 1e-4, torch.float64: 1e-9}), EXACT, EXACT,
    ),
    dtypes=("fp32", "fp64"),  # in bf16 rounding decides which splats are seen, by 0.5 %
)  # fmt: skip
