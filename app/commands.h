// The subcommands. Each gets the command line from its own name on (argv[0] is "train", "data", ...) and returns the
// exit code; errors leave as exceptions, which main.cpp turns into one message and an exit code.
#pragma once

namespace esm::app {

int cmd_train(int argc, char** argv);    // cmd_train.cpp
int cmd_eval(int argc, char** argv);     // cmd_eval.cpp
int cmd_data(int argc, char** argv);     // cmd_data.cpp: data prepare
int cmd_convert(int argc, char** argv);  // cmd_convert.cpp
int cmd_inspect(int argc, char** argv);  // cmd_inspect.cpp
int cmd_plan(int argc, char** argv);     // cmd_plan.cpp
int cmd_bench(int argc, char** argv);    // cmd_bench.cpp: bench step | gemm | kernels
int cmd_doctor(int argc, char** argv);   // cmd_doctor.cpp
int cmd_config(int argc, char** argv);   // cmd_config.cpp: config show | check | reference
int cmd_report(int argc, char** argv);   // cmd_report.cpp: report fp8

}  // namespace esm::app
