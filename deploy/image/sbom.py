"""Writes an SPDX 2.3 document of an image: our program, the Debian packages that its files came from, and the
pinned wheels and npm package that went into it."""
import argparse
import hashlib
import json
import pathlib
import re
import subprocess
import sys

# Of deploy/cuda.requirements, what is not in an image.
COMPILE_ONLY = {"nvidia-cuda-cccl", "nvidia-cuda-crt", "nvidia-cuda-nvcc", "nvidia-nvvm"}


def debian_packages(files):
    """Name, version and source package of whatever owns `files`."""
    paths = set()
    for path in files:
        paths |= {path, path.removeprefix("/usr")}  # dpkg knows files by the path before /usr was merged
    owners = subprocess.run(["dpkg-query", "-S", *sorted(paths)], capture_output=True, text=True, check=False).stdout
    names = sorted({line.rsplit(": ", 1)[0].split(",")[0] for line in owners.splitlines() if not line.startswith("diversion")})
    found = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version} ${source:Package}\n", *names],
                           capture_output=True, text=True, check=True).stdout
    return sorted({tuple(line.split()) for line in found.splitlines()})


def package(name, version, purl, digest=None):
    key = re.sub(r"[^A-Za-z0-9.-]", "-", f"{name}-{version}")
    entry = {"SPDXID": f"SPDXRef-{key}", "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION",
             "filesAnalyzed": False,
             "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]}
    if digest:
        entry["checksums"] = [{"algorithm": "SHA256", "checksumValue": digest}]
    return entry


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--files", required=True, type=pathlib.Path, help="one path a line: files taken from Debian packages")
    parser.add_argument("--repository", required=True, type=pathlib.Path)
    parser.add_argument("--libtorch", action="store_true", help="the image has LibTorch")
    parser.add_argument("--cuda", action="store_true", help="and its CUDA half with what that loads")
    options = parser.parse_args()
    deploy = options.repository / "deploy"
    version = re.search(r"project\(tessera VERSION (\S+)", (options.repository / "CMakeLists.txt").read_text()).group(1)

    packages = [package("tessera", version, f"pkg:generic/tessera@{version}")]
    for name, number, source in debian_packages(options.files.read_text().split()):
        packages.append(package(name, number, f"pkg:deb/debian/{name}@{number}?upstream={source}&distro=debian-12"))
    wheels = set()
    for file in ["libtorch.requirements"] * options.libtorch + ["cuda.requirements"] * options.cuda:
        wheels |= set(re.findall(r"^(\S+)==(\S+) --hash=sha256:(\w+)", (deploy / file).read_text(), re.M))
    for name, number, digest in sorted(wheels):
        if name not in COMPILE_ONLY:
            packages.append(package(name, number, f"pkg:pypi/{name}@{number}", digest))
    if options.name == "tessera-tesserad":
        name, number = [line for line in (deploy / "console.package").read_text().splitlines() if line[0] != "#"][0].split()[:2]
        packages.append(package(name, number, f"pkg:npm/{name}@{number}"))

    content = hashlib.sha256(json.dumps(packages).encode()).hexdigest()
    json.dump({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": options.name,
        "documentNamespace": f"https://tessera.dev/spdx/{options.name}-{content}",
        "creationInfo": {"created": "1970-01-01T00:00:00Z", "creators": ["Tool: deploy/image/sbom.py"]},
        "packages": packages,
        "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": packages[0]["SPDXID"]}]
        + [{"spdxElementId": packages[0]["SPDXID"], "relationshipType": "DEPENDS_ON", "relatedSpdxElement": p["SPDXID"]} for p in packages[1:]],
    }, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
