package message

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Answer is a response that is held until it is judged.
type Answer struct {
	Status int           // the HTTP status
	Header http.Header   // the headers, as the server sent them until they are localized
	Body   []byte        // all of it
	Said   bool          // the body is not what is there, but what a write came to
	Buffer *bytes.Buffer // that holds the body and is given back when the client has it; nil if there is none
}

// TypeJSON is the media type of every answer that was judged.
const TypeJSON = "application/fhir+json"

// NewAnswer is an answer of our own.
func NewAnswer(status int, body []byte) *Answer {
	return &Answer{Status: status, Header: http.Header{"Content-Type": {TypeJSON + "; charset=utf-8"}}, Body: body}
}

// With is the answer with another body.
func (a *Answer) With(body []byte) *Answer {
	return &Answer{Status: a.Status, Header: a.Header, Body: body}
}

// Succeeded reports whether the status is 2xx.
func (a *Answer) Succeeded() bool { return a.Status/100 == 2 }

// IsJSON reports whether the body says that it is FHIR JSON.
func (a *Answer) IsJSON() bool {
	media, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == TypeJSON || media == "application/json" || strings.HasSuffix(media, "+json")
}

// droppedHeaders describe a body that may have become another, or a connection.
var droppedHeaders = []string{
	"Accept-Ranges", "Connection", "Content-Encoding", "Content-Length", "Content-Md5", "Content-Range", "Digest",
	"Keep-Alive", "Refresh", "Trailer", "Transfer-Encoding",
}

// Write sends the answer. A GET that names its ETag in If-None-Match is answered with 304 here, because the server was
// asked without (RFC 9110 §13.1.2): it would have answered so whether the resource may be seen or not.
func (a *Answer) Write(w http.ResponseWriter, r *http.Request) error {
	for name, values := range a.Header {
		if !slices.Contains(droppedHeaders, name) {
			w.Header()[name] = values
		}
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	if etag := a.Header.Get("Etag"); etag != "" && read && a.Status == http.StatusOK && IsNotModified(r.Header, etag) {
		w.Header().Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if len(a.Body) == 0 {
		w.Header().Del("Content-Type")
	}
	if a.Status != http.StatusNoContent {
		w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	w.WriteHeader(a.Status)
	if r.Method == http.MethodHead || len(a.Body) == 0 {
		return nil
	}
	_, err := w.Write(a.Body)
	return err
}

// IsNotModified reports whether If-None-Match names the ETag. Weak comparison, as RFC 9110 §13.1.2 has it.
func IsNotModified(header http.Header, etag string) bool {
	if etag == "" {
		return false
	}
	for _, value := range header["If-None-Match"] {
		for tag := range strings.SplitSeq(value, ",") {
			if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == strings.TrimPrefix(etag, "W/") {
				return true
			}
		}
	}
	return false
}
