"""The service against its own OpenAPI description: thousands of made-up requests, all checks of schemathesis.

    python benchmarks/contract.py [--examples 60] [--seed 1]

Valid and invalid requests, sequences of them, undeclared methods, missing keys: no answer may be a server error, or
anything that the description does not say. A request that fits the schema may still be one that cannot be done, as
filter expressions have a grammar that no JSON schema tells: 409 and 422 are right answers to it. And deleting some
documents does not delete the path that they are under.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from contract_kit import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=60, help="made-up requests an operation, of each kind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    made, errors, told = run(options.examples, options.seed)
    print(f"{made} requests, {errors} server errors, {'violations of the contract:' if told else 'no violation'}")
    if told or errors:
        sys.exit(told or 1)


if __name__ == "__main__":
    main()
