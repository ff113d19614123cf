// esmtrain report fp8
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "app/args.h"
#include "app/commands.h"
#include "app/subcommands.h"
#include "base/files.h"
#include "train/report_fp8.h"

namespace esm::app {
namespace {

/// Characters in a line of the terminal; 100 where the output goes elsewhere.
size_t output_width() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

int fp8(int argc, char** argv) {
  std::string run, metric = "underflow", tensor, svg, html;
  std::string figures;
  for (const train::Fp8Metric& m : train::fp8_metrics())
    figures += fmt::format("{}{} ({})", figures.empty() ? "" : ", ", m.name, m.meaning);
  Args args("report fp8", "FP8 statistics of a run: one figure by layer and step, as a table and as a heat map.");
  args.positional(run, "RUN", "Folder of a run that wrote fp8.jsonl.")
      .option(metric, "--metric", "NAME", figures + ".")
      .option(tensor, "--tensor", "NAME",
              "Only this tensor of each layer, for example fc1.x; otherwise the greatest value of all (of scale: the "
              "least).")
      .option(svg, "--svg", "FILE", "Write the heat map as an SVG picture.")
      .option(html, "--html", "FILE", "Write the heat map as an HTML page.")
      .example("esmtrain report fp8 runs/esm2", "what rounds to 0, and where")
      .example("esmtrain report fp8 runs/esm2 --metric amax --tensor fc1.dy --html amax.html", "as a picture");
  if (!args.parse(argc, argv)) return 0;

  const train::HeatMap map = train::fp8_heat_map(train::read_run_statistics(run), metric, tensor);
  if (!svg.empty()) write_file_atomically(svg, train::heat_map_svg(map));
  if (!html.empty()) write_file_atomically(html, train::heat_map_html(map));
  std::fputs(train::heat_map_table(map, output_width()).c_str(), stdout);
  return 0;
}

constexpr std::array kReports{
    Subcommand{"fp8", "FP8 statistics of a run, by layer and step", fp8},
};

}  // namespace

int cmd_report(int argc, char** argv) {
  static char help[] = "--help";
  std::array<char*, 2> listing{argv[0], help};
  const bool bare = argc < 2;
  return run_subcommand("esmtrain report", "What a run has recorded, as tables and pictures.", kReports,
                        bare ? 2 : argc, bare ? listing.data() : argv);
}

}  // namespace esm::app
