"""PTX of what is late or is shared by blocks: copies, mbarriers, clusters, grids that wait for others."""

from collections.abc import Sequence

from pkb.kit.emulated.ptx_statement import Statement, Unknown, known


def bulk_or_async(s: Statement, a: Sequence[str]) -> str:
    if s.full == "cp.async.commit_group":
        return "emu_copies_close();"
    if s.full == "cp.async.wait_group":
        return f"emu_copies_done({s.value(a[0])});"
    if s.full == "cp.async.wait_all":
        return "emu_copies_close(); emu_copies_done(0);"
    if s.has("bulk"):
        return _bulk(s, a)
    if s.full.startswith("cp.async.mbarrier.arrive."):
        at = 'static constexpr EmuAt emu_strong{"mbarrier.arrive.release.cta", __FILE__, __LINE__}; '
        return f"{at}emu::ptx::copies_arrive({s.address(a[0])}, {int(not s.has('noinc'))}, emu_strong);"
    if s.qualifiers[0] != "async" or s.qualifiers[1] not in ("ca", "cg"):
        raise Unknown
    to = f"emu::ptx::shared({s.value(a[0].strip('[] '))})"
    source = f"emu::ptx::generic({s.value(a[1].strip('[] '))})"
    size = s.value(a[2])
    read = s.value(a[3]) if len(a) > 3 else size
    return f"const unsigned emu_n = {read}; emu_copy_later({to}, {source}, emu_n, {size} - emu_n, nullptr);"


def _bulk(s: Statement, a: Sequence[str]) -> str:
    """Bulk copies of one dimension. Tensor maps, and copies that reduce are not known."""
    form = s.full.removeprefix("cp.async.bulk.").removesuffix(".L2::cache_hint")
    if form.startswith("prefetch.L2"):
        return f"emu::ptx::prefetch({s.address(a[0])}, {s.value(a[1])});"
    if form == "commit_group":
        return "emu_bulk_close();"
    if form in ("wait_group", "wait_group.read"):
        return f"emu_bulk_done({s.value(a[0])}, {int(s.has('read'))});"
    places = [s.value(operand.strip("[] ")) for operand in a[:2]]
    size = s.value(a[2])
    if form in (f"shared::{space}.global.mbarrier::complete_tx::bytes" for space in ("cluster", "cta")):
        to, barrier = (f"emu::ptx::shared({where})" for where in (places[0], s.value(a[3].strip("[] "))))
        return f"emu::ptx::bulk_load({to}, emu::ptx::generic({places[1]}), {size}, {barrier}, emu_at);"
    arrives = "mbarrier::complete_tx::bytes"
    if form in (f"shared::cluster.shared::cta.{arrives}", f"shared::cluster.global.{arrives}.multicast::cluster"):
        to, barrier = (f"emu::ptx::shared({where})" for where in (places[0], s.value(a[3].strip("[] "))))
        if s.has("shared::cta"):
            return f"emu::ptx::bulk_load({to}, emu::ptx::shared({places[1]}), {size}, {barrier}, emu_at);"
        source, ranks = f"emu::ptx::generic({places[1]})", s.value(a[4])
        return f"emu::ptx::bulk_multicast({to}, {source}, {size}, {barrier}, {ranks}, emu_at);"
    if form == "global.shared::cta.bulk_group":
        return f"emu::ptx::bulk_store(emu::ptx::generic({places[0]}), emu::ptx::shared({places[1]}), {size}, emu_at);"
    raise Unknown


def mbarrier(s: Statement, a: Sequence[str]) -> str:
    known(s, "init", "inval", "arrive", "expect_tx", "test_wait", "try_wait", "parity")
    if s.has("sys", "gpu"):
        raise Unknown
    # No scope is the block's by the letter; kernels that arrive at another block's barrier write none, and mean the cluster.
    scope = "cta" if s.has("cta") else "cluster"
    way = s.qualifiers[0]
    order = "relaxed" if s.has("relaxed") else "release" if way == "arrive" else "acquire"
    strong = f'static constexpr EmuAt emu_strong{{"mbarrier.{way}.{order}.{scope}", __FILE__, __LINE__}}; '
    if way == "init":
        return f"emu_mbarrier_init({s.address(a[0])}, {s.value(a[1])});"
    if way == "inval":
        return "(void)0;"
    if way == "expect_tx":
        return f"emu_mbarrier_arrive({s.address(a[0])}, 0, {s.value(a[1])});"
    if way == "arrive":
        out, place, *rest = a if "[" not in a[0] else ("_", *a)
        count, more = ("1", s.value(rest[0])) if s.has("expect_tx") else (s.value(rest[0]) if rest else "1", "0")
        call = f"emu::ptx::mbarrier_arrive({s.address(place)}, {count}, {more}, emu_strong)"
        keep = f"emu::ptx::set({s.value(out)}, {call});" if out != "_" else f"{call};"
        return strong + keep
    if way in ("test_wait", "try_wait"):
        call = f"emu::ptx::mbarrier_over({s.address(a[1])}, {s.get(a[2], 'uint64_t')}, emu_strong)"
        return strong + f"{s.value(a[0])} = {call};"
    raise Unknown


def mapped(s: Statement, a: Sequence[str]) -> str:
    """From an address of shared memory to the same place of another block of the cluster, or to the block that has it."""
    if s.has("shared::cluster"):
        place = f"emu::ptx::shared({s.value(a[1])})"
        mapped = "(uint32_t)__cvta_generic_to_shared(%s)"
    else:
        place = f"emu::ptx::generic({s.value(a[1])})"
        mapped = "(uint64_t)%s"
    if s.name == "getctarank":
        return f"emu::ptx::set({s.value(a[0])}, emu_cluster_rank_of({place}));"
    return f"emu::ptx::set({s.value(a[0])}, {mapped % f'emu_mapped({place}, {s.value(a[2])})'});"


def grid_control(s: Statement, a: Sequence[str]) -> str:
    return {"wait": "emu_wait_for_grids();", "launch_dependents": "(void)0;"}[s.qualifiers[0]]
