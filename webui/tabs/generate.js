import { Maker } from "../parts/maker.js";
import { RequestForm } from "../parts/request_form.js";

export class GenerateTab extends Maker {
  constructor() {
    super(new RequestForm("generate"), { kind: "generate" });
  }

  receive({ settings, lora }) {
    if (settings) this.form.set(settings);
    if (lora) this.form.addLora(lora);
  }
}
