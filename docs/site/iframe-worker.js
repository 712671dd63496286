// The search of the site runs in a worker, which browsers refuse to pages read from
// the disk. There, a hidden frame does its work. Nothing is loaded from elsewhere.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      this.inner.postMessage = (data) =>
        this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = this.load(url);
      this.inner.importScripts = (...urls) => Promise.all(urls.map((one) => this.load(one)));
    }

    load(url) {
      const script = this.inner.document.createElement("script");
      script.src = url;
      const done = new Promise((resolve) => (script.onload = resolve));
      this.inner.document.body.append(script);
      return done;
    }

    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.inner.frameElement.remove();
    }
  };
}
