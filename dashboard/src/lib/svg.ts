/** ECharts' SVG renderer, loaded when somebody saves a chart as a drawing. */
import { init, use } from "echarts/core";
import { SVGRenderer } from "echarts/renderers";

use([SVGRenderer]);

export function drawn(options: Record<string, unknown>, width: number, height: number): string {
  const chart = init(null, null, { renderer: "svg", ssr: true, width, height });
  chart.setOption(options);
  const text = chart.renderToSVGString();
  chart.dispose();
  return text;
}
