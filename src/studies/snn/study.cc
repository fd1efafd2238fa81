#include "studies/snn/study.h"

#include <vector>

namespace tessera::studies::snn {

const Paper& paper() {
  static const std::vector<Section> sections = {size(),  batch(),    steps(),      tiles(), chips(),
                                                dense(), overflow(), surrogates(), depth()};
  static const Paper paper{
      .name = "snn",
      .title = "Sparse spiking networks on IPUs",
      .about = "Train spiking networks with lists of spikes on modelled IPUs, as published, and on this host",
      .source =
          "J. Finkbeiner, T. Gmeinder, M. Pupilli, A. Titterton, E. Neftci, Harnessing Manycore Processors "
          "with Distributed Memory for Accelerated Training of Sparse and Recurrent Models, 2023. Its "
          "gains over an A100 were measured there, not here.",
      .sections = sections,
      .published = kGains,
      .full = "Also run what takes long: larger networks, longer sweeps, trainings of 20 epochs",
      .examples =
          "  tessera reproduce snn\n"
          "  tessera reproduce snn --machine bow --only size --json\n"
          "  tessera reproduce snn --machine gc200,host --full --out here"};
  return paper;
}

}  // namespace tessera::studies::snn
