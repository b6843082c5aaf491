package export

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/policy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// typeNDJSON is the media type of an export's files.
const typeNDJSON = "application/fhir+ndjson"

// ServeFile answers with a file of an export, as it comes.
func (x *Exports) ServeFile(w http.ResponseWriter, sealed string) (interaction.Interaction, error) {
	j, i, err := x.unsealed(FilePath, sealed)
	if err == nil && x.R.Method != http.MethodGet && x.R.Method != http.MethodHead {
		err = message.NotFound()
	}
	if err != nil {
		return i, err
	}
	_, err = x.Judge.Under(x.R.Context(), j.kickOff(), i, func() (*message.Answer, error) { return nil, x.stream(w, j) })
	return i, err
}

// stream has the next handler write a file to the client, in NDJSON unless the client takes none of FHIR's formats:
// asked for one of these, a server that keeps files as Binaries answers with the Binary in place of the file.
func (x *Exports) stream(w http.ResponseWriter, j job) error {
	ctx := x.R.Context()
	accept := []string{typeNDJSON}
	file := &fileWriter{to: w, header: http.Header{}, head: x.R.Method == http.MethodHead, limit: x.Limit}
	switch accepted := message.ParseAccept(x.R.Header); {
	case !j.All || x.Judge.MayDeny():
		// Of the type that the file is for, and left by the site's rules.
		file.keeps = func(line []byte) bool {
			res, err := x.At.Parse(line)
			return err == nil && res.Type == j.Holds && x.Judge.Ruled(ctx, res) != policy.Deny
		}
	case !accepted.TakesJSON() && accepted.Fhir("") == 0:
		accept = slices.Clone(x.R.Header["Accept"])
	}
	if err := x.Server.Pass(ctx, message.Get(j.Path, j.Query), accept, file); err != nil {
		return err
	}
	return file.end()
}

// fileWriter passes a file on as it comes, or line by line if not all lines may be kept.
type fileWriter struct {
	to     http.ResponseWriter
	header http.Header
	head   bool // without a body
	keeps  func(line []byte) bool
	limit  int64 // of a line
	status int
	line   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (f *fileWriter) Header() http.Header { return f.header }

var errFile = errors.New("file of an export that cannot be judged")

// WriteHeader implements http.ResponseWriter. What is no file is not passed on: see [fileWriter.end].
func (f *fileWriter) WriteHeader(status int) {
	if f.status != 0 || status < http.StatusOK {
		return
	}
	if f.status = status; !f.passes() {
		return
	}
	names := []string{"Content-Type", "Last-Modified", "Expires"}
	if f.keeps == nil {
		names = append(names, "Content-Length", "Content-Encoding", "Etag")
	}
	for _, name := range names {
		if value := f.header.Get(name); value != "" {
			f.to.Header().Set(name, value)
		}
	}
	f.to.WriteHeader(status)
}

// passes reports whether the answer is a file that may pass.
func (f *fileWriter) passes() bool {
	return f.status == http.StatusOK && (f.keeps == nil || strings.Contains(f.header.Get("Content-Type"), "ndjson") && f.header.Get("Content-Encoding") == "")
}

// Write implements http.ResponseWriter.
func (f *fileWriter) Write(p []byte) (int, error) {
	f.WriteHeader(http.StatusOK)
	switch {
	case !f.passes() || f.head:
		return len(p), nil
	case f.keeps == nil:
		return f.to.Write(p)
	}
	return len(p), f.writeLines(p)
}

// writeLines writes the lines that are complete, and keeps the rest for later.
func (f *fileWriter) writeLines(p []byte) error {
	for {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			end = len(p)
		}
		if int64(f.line.Len()+end) > f.limit {
			return message.ErrTooLong
		}
		f.line.Write(p[:end])
		if end == len(p) {
			return nil
		}
		if err := f.flushLine(); err != nil {
			return err
		}
		p = p[end+1:]
	}
}

// flushLine writes a line, if it is kept.
func (f *fileWriter) flushLine() error {
	defer f.line.Reset()
	if len(bytes.TrimSpace(f.line.Bytes())) == 0 || !f.keeps(f.line.Bytes()) {
		return nil
	}
	_, err := f.to.Write(append(f.line.Bytes(), '\n'))
	return err
}

// FlushError lets what was written so far be sent.
func (f *fileWriter) FlushError() error {
	if !f.passes() {
		return nil
	}
	return http.NewResponseController(f.to).Flush()
}

// end writes the last line, or returns the error that takes the place of the file.
func (f *fileWriter) end() error {
	switch {
	case f.status == 0:
		return message.Withheld(message.ErrNoAnswer)
	case f.status != http.StatusOK:
		return operation.FailedOperation(&message.Answer{Status: f.status, Header: f.header}, nil)
	case !f.passes():
		return message.Withheld(fmt.Errorf("%w: %s", errFile, f.header.Get("Content-Type")))
	case f.keeps == nil || f.head:
		return nil
	}
	return f.flushLine()
}
