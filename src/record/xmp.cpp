#include "record/xmp.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace flux2 {

namespace {

constexpr std::string_view kSourceType = "http://cv.iptc.org/newscodes/digitalsourcetype/";
constexpr std::string_view kNamespace = "urn:flux2.cpp:metadata:1.0";
constexpr std::string_view kOpen = "<flux2:record>", kClose = "</flux2:record>";

constexpr std::array<std::pair<std::string_view, char>, 4> kEntities = {
    {{"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&amp;", '&'}}};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const char* entity = nullptr;
    for (const auto& [name, character] : kEntities)
      if (c == character) entity = name.data();
    if (entity) out += entity;
    else out += c;
  }
  return out;
}

std::string unescaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    bool found = false;
    for (const auto& [name, character] : kEntities) {
      if (!text.starts_with(name)) continue;
      out += character;
      text.remove_prefix(name.size());
      found = true;
      break;
    }
    if (found) continue;
    out += text[0];
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace

std::string xmp_packet(const XmpContent& content) {
  std::string body;
  if (content.generated)
    body += fmt::format("<Iptc4xmpExt:DigitalSourceType>{}{}</Iptc4xmpExt:DigitalSourceType>", kSourceType,
                        content.composite ? "compositeWithTrainedAlgorithmicMedia" : "trainedAlgorithmicMedia");
  if (!content.own_json.empty()) body += fmt::format("{}{}{}", kOpen, escaped(content.own_json), kClose);
  return fmt::format(
      "<?xpacket begin=\"\xef\xbb\xbf\" id=\"W5M0MpCehiHzreSzNTczkc9d\"?>\n"
      "<x:xmpmeta xmlns:x=\"adobe:ns:meta/\"><rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">"
      "<rdf:Description rdf:about=\"\" xmlns:Iptc4xmpExt=\"http://iptc.org/std/Iptc4xmpExt/2008-02-29/\" "
      "xmlns:flux2=\"{}\">"
      "{}</rdf:Description></rdf:RDF></x:xmpmeta>\n<?xpacket end=\"w\"?>",
      kNamespace, body);
}

bool says_generated(std::string_view xmp) {
  return xmp.find("trainedAlgorithmicMedia") != xmp.npos || xmp.find("WithTrainedAlgorithmicMedia") != xmp.npos;
}

std::string own_json_of_xmp(std::string_view xmp) {
  const size_t start = xmp.find(kOpen);
  const size_t end = start == xmp.npos ? xmp.npos : xmp.find(kClose, start);
  if (end == xmp.npos) return {};
  return unescaped(xmp.substr(start + kOpen.size(), end - start - kOpen.size()));
}

}  // namespace flux2
