package api

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// readInputs reads the parameters of the query string and, in a POST, of the body: a form, a Parameters resource in JSON or
// XML, or another resource, which is the value of the parameter called bare.
func (c *Call) readInputs(w http.ResponseWriter, bare string) ([]parameters.Input, error) {
	r := c.Request
	inputs, err := parameters.QueryInputs(r.URL.RawQuery)
	if err != nil || r.Method != http.MethodPost {
		return inputs, err
	}
	body, err := c.readBody(w, r)
	if err != nil || len(body) == 0 {
		return inputs, err
	}
	if err := c.Budget.Read(len(body)); err != nil {
		return nil, err
	}
	return parameters.AddBody(inputs, r.Header.Get("Content-Type"), body, bare)
}

// maxTrusted bounds the memory allocated for a Content-Length before its body has come.
const maxTrusted = 256 << 10

// readBody reads the body of a POST, and puts it back for another server that may be asked.
func (c *Call) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	var body bytes.Buffer
	if n := r.ContentLength; n > 0 && n <= maxBody {
		body.Grow(min(int(n), maxTrusted) + bytes.MinRead)
	}
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &outcome.Error{Status: http.StatusRequestEntityTooLarge, Code: "too-long", Err: err, Text: "the body is larger than the limit of " + fhirjson.SizeText(maxBody)}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, &outcome.Error{Status: http.StatusRequestTimeout, Code: "timeout", Err: err, Text: "the body came too slowly"}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, &outcome.Error{Status: http.StatusBadRequest, Code: "incomplete", Err: err, Text: "the body could not be read whole"}
	}
	r.Body = io.NopCloser(bytes.NewReader(body.Bytes()))
	return body.Bytes(), nil
}
