#include <algorithm>
#include <array>
#include <iomanip>
#include <sstream>

#include "base/message.hpp"
#include "plan/explain.hpp"

namespace attngraph {
namespace {

// Pixels.
constexpr double kMapWidth = 900, kLeft = 80, kTop = 64, kMargin = 20;
constexpr double kPhaseHeight = 34, kLineHeight = 20, kCharWidth = 6.8;
constexpr double kLeastWidth = 3;  ///< a region of few bytes among large ones stays visible

/// Okabe and Ito's palette without black: told apart with any colour vision.
constexpr std::array kColours = {"#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

class Picture {
 public:
  explicit Picture(const PlanCore& core) : core_(core), workspace_(core.workspace) {}

  std::string draw() {
    const double map_height = kPhaseHeight * std::max(1, workspace_.num_phases());
    const double legend_top = kTop + map_height + 44;
    const double height =
        legend_top + kLineHeight * static_cast<double>(workspace_.entries().size()) + kMargin;
    out_ << std::fixed << std::setprecision(1);
    out_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << kLeft + kMapWidth + kMargin
         << "\" height=\"" << height << "\" font-family=\"monospace\" font-size=\"11\">\n"
         << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    write(kMargin, 24, 14,
          text("workspace of ", workspace_.bytes(), " bytes (", bytes_text(workspace_.bytes()), "), ",
               target_text(core_.target)));
    write(kMargin, 44, 11, "bytes from left to right, phases from top to bottom");
    for (int phase = 0; phase < workspace_.num_phases(); ++phase) draw_phase(phase);
    for (size_t i = 0; i < workspace_.entries().size(); ++i) draw_region(i);
    draw_scale(kTop + map_height);
    for (size_t i = 0; i < workspace_.entries().size(); ++i)
      draw_legend(i, legend_top + kLineHeight * static_cast<double>(i));
    out_ << "</svg>\n";
    return std::move(out_).str();
  }

 private:
  double across(int64_t bytes) const {
    return kMapWidth * static_cast<double>(bytes) /
           static_cast<double>(std::max<int64_t>(1, workspace_.bytes()));
  }
  static const char* colour(size_t region) { return kColours[region % kColours.size()]; }

  void write(double x, double y, int size, const std::string& words) {
    out_ << "<text x=\"" << x << "\" y=\"" << y << "\" font-size=\"" << size << "\">" << escaped(words)
         << "</text>\n";
  }

  void rectangle(double x, double y, double width, double height, const std::string& style) {
    out_ << "<rect x=\"" << x << "\" y=\"" << y << "\" width=\"" << width << "\" height=\"" << height << "\" "
         << style << "/>\n";
  }

  void draw_phase(int phase) {
    const double y = kTop + kPhaseHeight * phase;
    rectangle(kLeft, y, kMapWidth, kPhaseHeight, "fill=\"#f4f4f4\" stroke=\"#cccccc\"");
    write(kMargin, y + kPhaseHeight / 2 + 4, 11, text("phase ", phase));
  }

  void draw_region(size_t i) {
    const Booking& booking = workspace_.entries()[i].booking;
    const Region& region = workspace_.regions()[i];
    if (region.bytes == 0) return;
    const double x = kLeft + across(region.offset), width = std::max(kLeastWidth, across(region.bytes));
    const double y = kTop + kPhaseHeight * booking.lifetime.first + 2;
    const double height = kPhaseHeight * (booking.lifetime.last - booking.lifetime.first + 1) - 4;
    rectangle(x, y, width, height,
              text("fill=\"", colour(i), "\" fill-opacity=\"0.6\" stroke=\"#333333\" stroke-width=\"0.7\""));
    const auto fits = [&](const std::string& words) {
      return kCharWidth * static_cast<double>(words.size()) + 8 <= width;
    };
    const std::string number = text(i + 1),
                      full = text(i + 1, ' ', booking.name, ' ', bytes_text(region.bytes));
    if (fits(full))
      write(x + 4, y + height / 2 + 4, 11, full);
    else if (fits(number))
      write(x + 4, y + height / 2 + 4, 11, number);
  }

  void draw_scale(double y) {
    for (int quarter = 0; quarter <= 4; ++quarter) {
      const double x = kLeft + kMapWidth * quarter / 4;
      out_ << "<line x1=\"" << x << "\" y1=\"" << y << "\" x2=\"" << x << "\" y2=\"" << y + 5
           << "\" stroke=\"#333333\"/>\n";
      out_ << "<text x=\"" << x << "\" y=\"" << y + 18 << "\" text-anchor=\""
           << (quarter == 0   ? "start"
               : quarter == 4 ? "end"
                              : "middle")
           << "\">" << bytes_text(workspace_.bytes() / 4 * quarter + workspace_.bytes() % 4 * quarter / 4)
           << "</text>\n";
    }
  }

  void draw_legend(size_t i, double y) {
    const WorkspaceLayout::Entry& entry = workspace_.entries()[i];
    rectangle(kMargin, y - 10, 12, 12,
              text("fill=\"", colour(i), "\" fill-opacity=\"0.6\" stroke=\"#333333\""));
    const Region& region = workspace_.regions()[i];
    write(kMargin + 20, y, 11,
          text(i + 1, "  node ", entry.node, ' ', entry.booking.name, ": ", bytes_text(region.bytes), " at ",
               region.offset, ", phases ", phases_text(entry.booking.lifetime)));
  }

  const PlanCore& core_;
  const WorkspaceLayout& workspace_;
  std::ostringstream out_;
};

}  // namespace

std::string explain_svg(const PlanState& state) { return Picture(*state.core).draw(); }

}  // namespace attngraph
