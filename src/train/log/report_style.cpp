#include "train/log/report_style.h"

namespace flux2 {

const char* const kReportStyle = R"css(
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--text:#1b1f24;--dim:#66707c;--line:#e3e6ea;--grid:#eceff2;
--c0:#2563eb;--c1:#e8590c;--c2:#0f9d76;--c3:#9c36b5;--c4:#c28a00;--c5:#d6336c;--good:#0f9d76;--bad:#d6336c;--wait:#c28a00}
@media(prefers-color-scheme:dark){:root{--bg:#14171b;--card:#1d2126;--text:#e6e9ed;--dim:#98a2ae;--line:#30363d;--grid:#2a3037;
--c0:#6ea8fe;--c1:#ff9f5a;--c2:#4fd1a5;--c3:#d59bf0;--c4:#e9c46a;--c5:#ff85a8;--good:#4fd1a5;--bad:#ff85a8;--wait:#e9c46a}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:20px 16px 48px}
header{display:flex;flex-wrap:wrap;align-items:baseline;gap:4px 14px;margin-bottom:14px}
h1{font-size:1.6rem;margin:0;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:30px 0 10px}
.status{font-size:.85rem;font-weight:600;padding:2px 10px;border-radius:99px;border:1px solid currentColor;color:var(--wait)}
.status.done{color:var(--good)}.status.bad{color:var(--bad)}
header small{color:var(--dim)}
progress{width:100%;height:6px;border:0;border-radius:3px;overflow:hidden;background:var(--line);appearance:none;display:block;margin-bottom:16px}
progress::-webkit-progress-bar{background:var(--line)}
progress::-webkit-progress-value{background:var(--c0)}
progress::-moz-progress-bar{background:var(--c0)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:10px}
.card,.charts figure,.box{background:var(--card);border:1px solid var(--line);border-radius:10px}
.card{padding:10px 14px}
.card b{display:block;font-size:1.2rem;font-variant-numeric:tabular-nums}
.card span{color:var(--dim);font-size:.82rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:12px;margin-top:12px}
.charts figure{margin:0;padding:12px 12px 8px;min-width:0}
.charts figcaption{font-weight:600;font-size:.9rem;margin-bottom:4px}
.wide,.narrow{margin-top:12px}.wide{grid-template-columns:1fr}.narrow{display:none}
svg{display:block;width:100%;height:auto}
svg text{font-size:11px;fill:var(--dim);font-variant-numeric:tabular-nums}
.ty{text-anchor:end}.tx{text-anchor:middle}
.grid{stroke:var(--grid);fill:none}
.line{fill:none;stroke-width:1.7;stroke-linejoin:round}
.faint{stroke-width:1;opacity:.35}
.band{fill:transparent}.band:hover{fill:var(--dim);opacity:.16}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}.c5{--c:var(--c5)}
.line{stroke:var(--c)}.dot,.bar{fill:var(--c)}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:.8rem;color:var(--dim);padding-left:8px}
.key i{display:inline-block;width:12px;height:3px;border-radius:2px;background:var(--c);margin-right:5px;vertical-align:middle}
.prompt{margin:0 0 18px}
.prompt p{margin:0 0 6px;overflow-wrap:anywhere}
.prompt p b{display:inline-block;min-width:1.5em;color:var(--dim)}
small{color:var(--dim)}
.strip{display:flex;gap:8px;overflow-x:auto;padding-bottom:6px}
.strip figure{margin:0;flex:0 0 auto;width:168px}
.strip img{display:block;width:100%;height:auto;border-radius:8px;background:var(--line)}
.strip figcaption{color:var(--dim);font-size:.78rem;text-align:center;margin-top:2px}
.gone{display:grid;place-items:center;height:168px;border:1px dashed var(--line);border-radius:8px;color:var(--dim);font-size:.78rem}
.box{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.86rem}
th,td{text-align:left;padding:6px 12px;border-top:1px solid var(--line);vertical-align:top}
tr:first-child th,tr:first-child td{border-top:0}
th{color:var(--dim);font-weight:600;white-space:nowrap}
td{overflow-wrap:anywhere;min-width:5em}
td.n{white-space:nowrap;font-variant-numeric:tabular-nums}
code{font:12px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.removed{color:var(--dim);text-decoration:line-through}
.warnings{margin:0;padding:8px 12px 8px 30px}
.warnings li{margin:4px 0;overflow-wrap:anywhere}
details summary{cursor:pointer;font-weight:600;font-size:1.1rem;margin:30px 0 10px}
@media(max-width:700px){main{padding:14px 10px 40px}.wide{display:none}.narrow{display:grid}h1{font-size:1.3rem}
.cards{grid-template-columns:repeat(2,1fr)}.strip figure{width:132px}.gone{height:132px}}
)css";

}  // namespace flux2
