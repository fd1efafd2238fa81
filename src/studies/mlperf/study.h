// `tessera reproduce mlperf`: the slides "SW/HW co-optimization on the IPU: an MLPerf case study" (Krell),
// row by row, and the times to train of the logs of MLPerf Training v1.0 to v2.0.
#pragma once

#include <span>

#include "studies/paper/study.h"

namespace tessera::studies::mlperf {

const Paper& paper();

/// The tables that are committed with this study, generated from published/.
extern const std::span<const base::EmbeddedFile> kSlides;

Section hardware_section();   ///< the chip, the machine and the pod
Section wikipedia_section();  ///< packings of Wikipedia, by the study of packing
Section squad_section();      ///< packings of SQuAD, by the study of packing
Section model_section();      ///< what packing changes in the model and its optimizer
Section training_section();   ///< measured steps on packs, by the study of packing
Section steps_section();      ///< modelled steps of BERT-large, which other sections read
Section speed_up_section();   ///< what packing gains on a pod, with and without transfers from the host
Section host_section();       ///< hosts of a pod
Section pipeline_section();   ///< schedules and recomputation
Section sharding_section();   ///< the optimizer's state, divided among replicas
Section batch_section();      ///< stashed activations, and what accumulation saves
Section numbers_section();    ///< FP16 with stochastic rounding
Section resnet_section();     ///< ResNet-50, with its times to train
Section time_section();       ///< times to train BERT-large, beside the logs

}  // namespace tessera::studies::mlperf
