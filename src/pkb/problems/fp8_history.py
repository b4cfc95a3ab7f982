"""Tensors and histories of largest magnitudes for FP8 with delayed scaling: no correct kernel fails by how it rounds."""

import torch

from pkb.problems.draw import Draw

HISTORY = 16
# Maxima (times a power of two) that give the same float32 scale by division by 448 and by multiplication by 1 / 448, and
# bf16 quotients that are on no boundary between two codes: no correct kernel fails for how its hardware divides.
SIGNIFICANDS = (129, 133, 135, 139, 143, 147, 149, 153, 157, 163, 167, 171, 177, 181, 185, 191, 195, 205, 209, 219, 223)


def draw_with_history(draw: Draw, name: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor of known largest magnitude, and a history that may be larger and may have its largest entry leave now."""
    choice = draw.random(f"{name} history")
    exponent = choice.choice((-7, -6, -5))
    largest = choice.choice(SIGNIFICANDS) * 2.0**exponent
    history = [choice.uniform(0.1, 0.9) * largest for _ in range(HISTORY)]
    if choice.random() < 0.5:
        history[0] = choice.uniform(1.1, 1.9) * largest  # dropped before the scale is taken
    if choice.random() < 0.5:
        peak = largest + 2.0 ** (exponent - 3)  # a float32 maximum is not in bf16, where it becomes `largest`
    else:
        history[choice.randrange(1, HISTORY)] = largest
        peak = largest * choice.uniform(0.5, 0.9)
    values = draw.normal(name, (count,), scale=peak / choice.uniform(4.0, 6.0), dtype=torch.float32)
    values.clamp_(-0.98 * peak, 0.98 * peak)
    values[choice.randrange(count)] = peak if choice.random() < 0.5 else -peak
    return values.to(draw.dtype), torch.tensor(history, dtype=torch.bfloat16, device=draw.device)
