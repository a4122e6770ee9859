import { Maker } from "../parts/maker.js";
import { RequestForm } from "../parts/request_form.js";
import { XyGrid } from "../parts/xy_grid.js";

export class GenerateTab extends Maker {
  constructor() {
    const form = new RequestForm("generate");
    super(form, { kind: "generate" });
    const grid = new XyGrid(form, "generate");
    this.button.after(grid.element);
    this.result.element.after(grid.table);
  }

  receive({ settings, lora, append }) {
    if (append) this.form.set({ prompt: `${this.form.draft.prompt.trimEnd()} ${append} `.trimStart() });
    if (settings) this.form.set(settings);
    if (lora) this.form.addLora(lora);
  }
}
