#!/bin/bash
# Makes an environment for each peer in FOLDER, which must be of no other use:
#
#     install.sh FOLDER [NAME...]
#
# NAME is torchvision, which has to be there for the others, webdataset, datasets, litdata, dali or
# ffcv; without one all are made.
#
# All but torchvision see PyTorch and torchvision through a .pth file. A peer that does not install is
# left out; FOLDER/NAME.log says why. FFCV is built from source: on Debian it needs
#
#     apt-get install build-essential pkg-config libopencv-dev libturbojpeg0-dev
set -u
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
python=${PYTHON:-python3}

install() { # NAME, and what shows that it works: a module
  rm -f "$folder/$1.ok"
  [ -d "$folder/$1" ] || "$python" -m venv "$folder/$1"
  pip=("$folder/$1/bin/python" -m pip install --quiet --disable-pip-version-check)
  if [ "$1" != torchvision ]; then
    "$folder/torchvision/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
      >"$("$folder/$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torchvision.pth"
  fi
  {
    case $1 in
      torchvision) "${pip[@]}" torch==2.14.1 torchvision==0.29.1 pillow ;;
      webdataset) "${pip[@]}" webdataset ;;
      datasets) "${pip[@]}" datasets ;;
      litdata) "${pip[@]}" litdata ;;
      dali) "${pip[@]}" nvidia-dali-cuda130 ;;
      ffcv)
        "${pip[@]}" numpy==1.26.0 opencv-python-headless==4.11.0.86 numba setuptools==80.9.0 \
          terminaltables assertpy fastargs pandas==2.2.3 tqdm &&
          "${pip[@]}" --no-build-isolation --no-deps ffcv
        ;;
    esac && "$folder/$1/bin/python" -c "import torchvision.io, $2" && touch "$folder/$1.ok"
  } >"$folder/$1.log" 2>&1
  [ -e "$folder/$1.ok" ] && echo "$1: installed" || echo "$1: left out, see $folder/$1.log"
}

declare -A modules=([torchvision]=torch [webdataset]=webdataset [datasets]=datasets
  [litdata]=litdata [dali]=nvidia.dali [ffcv]=ffcv.loader)
[ $# -gt 0 ] || set -- torchvision webdataset datasets litdata dali ffcv
for name in "$@"; do install "$name" "${modules[$name]}"; done
