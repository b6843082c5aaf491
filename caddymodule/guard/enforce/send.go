package enforce

import (
	"context"
	"net/http"
	"strings"
)

// put is the call that writes a version.
func (w *write) put(body []byte, etag string) call {
	c := call{method: http.MethodPut, path: w.i.Type + "/" + w.i.ID, header: w.headers(), body: body}
	if etag != "" {
		c.header.Set("If-Match", etag)
	}
	return c
}

// post is the call that creates a resource.
func (w *write) post(body []byte) call {
	return call{method: http.MethodPost, path: w.i.Type, header: w.headers(), body: body}
}

// headers are what the FHIR server is told along with a write: of what the body is, and how much the client wants back.
func (w *write) headers() http.Header {
	header := http.Header{"Content-Type": {typeJSON}}
	for _, value := range w.c.header.Values("Prefer") {
		for _, preference := range []string{"return=minimal", "return=representation", returnOutcome} {
			if strings.Contains(value, preference) {
				header.Set("Prefer", preference)
			}
		}
	}
	for _, name := range []string{"X-Cascade", "X-Provenance"} { // newWrite has checked them
		if value := w.c.header.Get(name); value != "" {
			header.Set(name, value)
		}
	}
	return header
}

// forward has the FHIR server do what the client asked for, on the condition that the client set.
func (w *write) forward(ctx context.Context) (*answer, error) {
	query, ifNoneExist := w.forwardedCriteria()
	c := w.c
	c.header, c.query = w.headers(), query
	if ifNoneExist != nil {
		c.header["If-None-Exist"] = ifNoneExist
	}
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if values := w.c.header.Values(name); len(values) > 0 {
			c.header[name] = values
		}
	}
	if media := w.c.header.Get("Content-Type"); media != "" {
		c.header.Set("Content-Type", media)
	}
	return w.send(ctx, c)
}

// send has the FHIR server write, and tells the client what came of it as far as it may know. In a transaction, it waits
// for the other entries.
func (w *write) send(ctx context.Context, c call) (*answer, error) {
	if w.in.collect != nil {
		return w.in.collect(w.result(), c)
	}
	a, err := w.in.server.Ask(ctx, c)
	if err != nil {
		return nil, err
	}
	return w.result().told(ctx, a)
}
