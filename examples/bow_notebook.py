"""A sparse layer on modelled Bow IPUs: where the cycles and the bytes go.

The cells (# %%) run in Jupyter, VS Code or Spyder, where the last line of one shows the page of a product; as a
program it prints. Run it with the package installed: python examples/bow_notebook.py
"""

# %% A pruned layer: 1/16 of 1024 × 1024 weights, in blocks of 16.
import tessera

weight = tessera.generate(1024, 1024, density=1 / 16, block_size=16, seed=1)

# %% Planned, compiled, and its cycles and bytes counted on one Bow and on two; nothing is multiplied yet.
for tiles in (1472, 2944):
    bow = tessera.Machine("bow", tiles=tiles)
    for mode in ("dense", "static", "dynamic"):
        estimate = tessera.profile_product(weight, n=256, machine=bow, dtype="f16", mode=mode, execute=False)
        fullest = estimate.memory.sum(axis=1).max() / bow.tile_bytes
        print(f"{tiles} tiles, {mode:8} {estimate.cycles:8.0f} cycles, fullest tile {100 * fullest:4.1f} %")

# %% Run on the host, compared with float64.
result = tessera.profile_product(weight, n=256, machine="bow", dtype="f16")
print({phase: f"{1e6 * seconds:.1f} µs" for phase, seconds in result.phases.items() if seconds})
print(dict(zip(result.purposes, result.memory.sum(axis=0).tolist(), strict=True)), "bytes on all tiles")
print(f"largest error {result.error:.1e} of {result.tolerance:.1e}")

# %% The report: schedule, memory of each tile, candidates.
result
