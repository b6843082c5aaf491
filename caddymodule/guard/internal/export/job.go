package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

const (
	// JobPath is the path of sealed links to jobs, below the FHIR base.
	JobPath = "_job/"
	// FilePath is the path of sealed links to the files of jobs, below the FHIR base.
	FilePath = "_file/"
	// jobLifetime is how long links to a job and its files are valid.
	jobLifetime = 7 * 24 * time.Hour
)

// job is the content of a sealed link to a job or to one of its files.
type job struct {
	Path     string   `json:"p"` // path on the FHIR server, below its base
	Query    string   `json:"q,omitempty"`
	Base     string   `json:"b"` // path of the FHIR API in the FHIR server's links
	Request  string   `json:"r"` // the client's kick-off request
	Types    []string `json:"t,omitempty"`
	AllTypes bool     `json:"a,omitempty"` // the job may export all types
	// JudgedByPolicies is true if policies judged resources at the kick-off, so its parameters were checked for leaks.
	JudgedByPolicies bool `json:"j,omitempty"`
	// FileType is the type of a file's resources. For a judged job, Path and Query are those of the job, and the file combines
	// all files of this type.
	FileType string `json:"h,omitempty"`
}

// sealJob returns the URL of a job or file for the token.
func (x *Handler) sealJob(ctx context.Context, path string, j job) (string, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return "", err
	}
	sealed, err := x.Sealing.Seal(ctx, string(text), x.bindingOf(path))
	if err != nil {
		return "", fmt.Errorf("sealing export job link: %w", err)
	}
	return x.Addresses.URL(path+sealed, ""), nil
}

// bindingOf returns the binding of a link to a job or file. Bindings of jobs and files differ.
func (x *Handler) bindingOf(path string) string { return path + x.Binding }

// unsealJob returns the content of a link to a job or file, and the interaction of its kick-off. A link of another token gets
// 404.
func (x *Handler) unsealJob(path, sealed string) (j job, i interaction.Interaction, err error) {
	text, err := x.Sealing.Unseal(x.Request.Context(), sealed, x.bindingOf(path), jobLifetime)
	if err != nil {
		return j, i, message.NotFound()
	}
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return j, i, fmt.Errorf("decoding export job link: %w", err)
	}
	i, err = j.kickOff().Interaction()
	return j, i, err
}

// kickOff returns the call that started the job.
func (j job) kickOff() message.Call {
	path, query, _ := strings.Cut(j.Request, "?")
	return message.NewGet(path, query)
}

// withCurrentPolicies returns the handler under the current policies. If policies may now deny resources but did not at the
// kick-off, the job is rejected, because its filters may have used records that policies deny.
func (x *Handler) withCurrentPolicies(j job, i interaction.Interaction) (*Handler, error) {
	of, err := x.Judge.ForCall(x.Request.Context(), j.kickOff(), i)
	if err != nil {
		return nil, err
	}
	if of.MayDeny() && !j.JudgedByPolicies {
		return nil, message.Forbidden(message.ErrDisclosure, "The access policies of this server changed after the export started: start a new export.")
	}
	restricted := *x
	restricted.Judge = of
	return &restricted, nil
}

// ServeJob returns the status of a job, or cancels it.
func (x *Handler) ServeJob(sealed string) (interaction.Interaction, *message.Response, error) {
	j, i, err := x.unsealJob(JobPath, sealed)
	if err != nil {
		return i, nil, err
	}
	if x, err = x.withCurrentPolicies(j, i); err != nil {
		return i, nil, err
	}
	serve := x.jobStatus
	if x.Request.Method == http.MethodDelete {
		serve = x.cancelJob
	}
	a, err := serve(x.Request.Context(), j)
	return i, a, err
}

// cancelJob cancels a job, or deletes its files.
func (x *Handler) cancelJob(ctx context.Context, j job) (*message.Response, error) {
	a, err := x.Server.Do(ctx, message.Call{Method: http.MethodDelete, Path: j.Path, Query: j.Query})
	if err != nil {
		return nil, err
	}
	if !a.IsSuccess() {
		return nil, operation.Failure(a, nil)
	}
	return message.NewResponse(http.StatusAccepted, nil), nil
}

func (x *Handler) jobStatus(ctx context.Context, j job) (*message.Response, error) {
	if x.Request.Method != http.MethodGet && x.Request.Method != http.MethodHead {
		return nil, message.NotFound()
	}
	a, err := x.Server.Do(ctx, message.NewGet(j.Path, j.Query))
	switch {
	case err != nil:
		return nil, err
	case a.Status == http.StatusAccepted && j.JudgedByPolicies: // progress may contain a number of resources
		return newResponse(http.StatusAccepted, nil, a, "Retry-After"), nil
	case a.Status == http.StatusAccepted:
		return newResponse(http.StatusAccepted, nil, a, "X-Progress", "Retry-After"), nil
	case a.Status != http.StatusOK:
		return nil, operation.Failure(a, nil)
	}
	text, err := x.manifest(ctx, j, a.Body)
	if err != nil {
		return nil, err
	}
	done := newResponse(http.StatusOK, text, a, "Expires")
	done.Header.Set("Content-Type", "application/json")
	return done, nil
}

// newResponse returns a response with some headers of the FHIR server's response.
func newResponse(status int, body []byte, a *message.Response, names ...string) *message.Response {
	out := message.NewResponse(status, body)
	for _, name := range names {
		if value := a.Header.Get(name); value != "" {
			out.Header.Set(name, value)
		}
	}
	return out
}

// manifest is the result of an export (Bulk Data Access 2.0, "Response - Complete Status").
type manifest struct {
	TransactionTime     string       `json:"transactionTime"`
	Request             string       `json:"request"`
	RequiresAccessToken bool         `json:"requiresAccessToken"`
	Output              []outputFile `json:"output"`
	Deleted             []outputFile `json:"deleted,omitempty"`
	Error               []outputFile `json:"error"`
}

type outputFile struct {
	Type  string `json:"type"`
	URL   string `json:"url"`
	Count *int64 `json:"count,omitempty"`
}

var errManifest = errors.New("export manifest cannot be checked")

// readManifest parses the result of an export. It returns an error if the output contains types that the job may not export.
func readManifest(j job, text []byte) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return m, message.NewWithheldError(fmt.Errorf("%w: %w", errManifest, err))
	}
	for _, file := range m.Output {
		if !(access.UnrestrictedTypes{Names: j.Types, AllTypes: j.AllTypes}).Has(file.Type) {
			return m, message.Forbidden(message.ErrInsufficientScope, "The export contains types that no system scope allows exporting.")
		}
	}
	return m, nil
}

// manifest returns the result of an export with sealed links. Unknown members are dropped. Files of deleted resources may
// contain any type, so they are included only if the job may export all types.
func (x *Handler) manifest(ctx context.Context, j job, text []byte) ([]byte, error) {
	m, err := readManifest(j, text)
	if err != nil {
		return nil, err
	}
	m.Request, m.RequiresAccessToken = x.Addresses.URL(j.Request, ""), true
	if j.JudgedByPolicies {
		if err := x.judgeManifest(ctx, j, &m); err != nil {
			return nil, err
		}
		return json.Marshal(m)
	}
	if !j.AllTypes {
		m.Deleted = nil
	}
	for _, files := range []*[]outputFile{&m.Output, &m.Deleted, &m.Error} {
		if *files == nil && files != &m.Deleted {
			*files = []outputFile{}
		}
		for n := range *files {
			if err := x.sealFile(ctx, j, &(*files)[n]); err != nil {
				return nil, err
			}
		}
	}
	return json.Marshal(m)
}

// judgeManifest reduces the output to one file for each type with a visible resource. The number of files, their counts, empty
// files, and files of deletions and errors would all reveal denied resources.
func (x *Handler) judgeManifest(ctx context.Context, j job, m *manifest) error {
	server := *m
	m.Output, m.Deleted, m.Error = []outputFile{}, nil, []outputFile{}
	for _, file := range server.Output {
		if slices.ContainsFunc(m.Output, func(seen outputFile) bool { return seen.Type == file.Type }) {
			continue
		}
		j.FileType = file.Type
		ok, err := x.hasVisibleLine(ctx, j, server)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		link, err := x.sealJob(ctx, FilePath, j)
		if err != nil {
			return err
		}
		m.Output = append(m.Output, outputFile{Type: file.Type, URL: link})
	}
	slices.SortFunc(m.Output, func(a, b outputFile) int { return strings.Compare(a.Type, b.Type) })
	return nil
}

// sealFile replaces a file's URL by a sealed one.
func (x *Handler) sealFile(ctx context.Context, j job, file *outputFile) (err error) {
	if j.Path, j.Query, err = splitBelowBase(j.Base, file.URL); err != nil {
		return err
	}
	j.FileType = file.Type
	file.URL, err = x.sealJob(ctx, FilePath, j)
	return err
}

// typeNDJSON is the media type of an export's files.
const typeNDJSON = "application/fhir+ndjson"

// acceptAnyFormat accepts a file in any format. HAPI stores files as Binaries, and returns the Binary in XML if the media type
// in Accept differs from the kick-off's, even if both mean NDJSON.
var acceptAnyFormat = []string{"*/*"}

// ServeFile returns a file of an export.
func (x *Handler) ServeFile(w http.ResponseWriter, sealed string) (interaction.Interaction, error) {
	j, i, err := x.unsealJob(FilePath, sealed)
	if err == nil && x.Request.Method != http.MethodGet && x.Request.Method != http.MethodHead {
		err = message.NotFound()
	}
	if err == nil {
		x, err = x.withCurrentPolicies(j, i)
	}
	if err != nil {
		return i, err
	}
	return i, x.stream(w, j)
}

// stream writes a file to the client, line by line.
func (x *Handler) stream(w http.ResponseWriter, j job) error {
	ctx := x.Request.Context()
	file := &fileWriter{client: w, isHead: x.Request.Method == http.MethodHead, isVisible: x.visibleLineFilter(ctx, j), maxBytes: x.MaxLineBytes}
	if !j.JudgedByPolicies {
		return file.finish(x.streamFile(ctx, message.NewGet(j.Path, j.Query), file))
	}
	m, err := x.fetchManifest(ctx, j)
	if err != nil {
		return err
	}
	return file.finish(x.streamFiles(ctx, j, m, file))
}

// fetchManifest requests the manifest of a completed job.
func (x *Handler) fetchManifest(ctx context.Context, j job) (manifest, error) {
	a, err := x.Server.Do(ctx, message.NewGet(j.Path, j.Query))
	if err != nil {
		return manifest{}, err
	}
	if a.Status != http.StatusOK {
		return manifest{}, operation.Failure(a, nil)
	}
	return readManifest(j, a.Body)
}

// hasVisibleLine reports whether the files of the job's type contain a line that policies do not deny.
func (x *Handler) hasVisibleLine(ctx context.Context, j job, m manifest) (bool, error) {
	if x.Judge.DeniesType(ctx, j.FileType) {
		return false, nil // no file has to be read
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // cancel the rest of the file
	probe := &fileWriter{isVisible: x.visibleLineFilter(ctx, j), maxBytes: x.MaxLineBytes}
	err := x.streamFiles(ctx, j, m, probe)
	if errors.Is(err, errVisibleLine) {
		return true, nil
	}
	return false, err
}

// streamFiles streams all files of a type to w.
func (x *Handler) streamFiles(ctx context.Context, j job, m manifest, w *fileWriter) error {
	for _, file := range m.Output {
		if file.Type != j.FileType {
			continue
		}
		path, query, err := splitBelowBase(j.Base, file.URL)
		if err == nil {
			err = x.streamFile(ctx, message.NewGet(path, query), w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// streamFile streams one of the FHIR server's files to w.
func (x *Handler) streamFile(ctx context.Context, c message.Call, w *fileWriter) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.header, w.status = http.Header{}, 0
	defer func() {
		if message.RepanicUnlessAborted(recover(), w.writeErr); w.writeErr != nil {
			err = w.writeErr
		}
	}()
	if err := x.Server.Stream(ctx, c, acceptAnyFormat, w); err != nil {
		return err
	}
	return w.endFile()
}

// visibleLineFilter returns a filter for the lines of a file. The filter returns an error for a line that is not a resource.
func (x *Handler) visibleLineFilter(ctx context.Context, j job) func(line []byte) (bool, error) {
	return func(line []byte) (bool, error) {
		res, err := x.Addresses.Parse(line)
		if err != nil {
			return false, fmt.Errorf("%w: %w", errNotNDJSON, err)
		}
		return j.AllTypes && !j.JudgedByPolicies || res.Type == j.FileType && x.Judge.PolicyEffect(ctx, res) != rule.Deny, nil
	}
}

// fileWriter writes the visible lines of files. It sends the header with the first visible line. If client is nil, it only
// detects whether there is one.
type fileWriter struct {
	client    http.ResponseWriter // nil: the first visible line returns errVisibleLine
	isHead    bool                // response without a body
	isVisible func(line []byte) (bool, error)
	maxBytes  int64 // maximum size of a line or a Binary in bytes

	header     http.Header // header of the current file
	status     int         // status of the current file
	line       bytes.Buffer
	headerSent bool  // the header has been sent to the client
	writeErr   error // error of Write
}

var (
	errNotNDJSON   = errors.New("export file is not NDJSON")
	errVisibleLine = errors.New("export file contains a visible line")
)

// Header implements http.ResponseWriter.
func (f *fileWriter) Header() http.Header { return f.header }

// WriteHeader implements http.ResponseWriter.
func (f *fileWriter) WriteHeader(status int) {
	if f.status == 0 && status >= http.StatusOK {
		f.status = status
	}
}

// Write implements http.ResponseWriter.
func (f *fileWriter) Write(p []byte) (int, error) {
	f.WriteHeader(http.StatusOK)
	switch {
	case f.writeErr != nil:
	case f.status != http.StatusOK:
		return len(p), nil
	case f.header.Get("Content-Encoding") != "":
		f.writeErr = message.NewWithheldError(fmt.Errorf("%w: unsupported Content-Encoding %s", errNotNDJSON, f.header.Get("Content-Encoding")))
	case f.isBinary():
		f.writeErr = f.bufferPart(p)
	default:
		f.writeErr = f.writeLines(p)
	}
	if f.writeErr != nil {
		return 0, f.writeErr
	}
	return len(p), nil
}

// isBinary reports whether the file is sent as JSON, i.e. as the Binary in which the FHIR server stores it.
func (f *fileWriter) isBinary() bool {
	return (&message.Response{Header: f.header}).IsJSON()
}

// bufferPart buffers a part of a line, or of a Binary.
func (f *fileWriter) bufferPart(p []byte) error {
	if int64(f.line.Len()+len(p)) > f.maxBytes {
		return message.NewWithheldError(message.ErrResponseTooLong)
	}
	f.line.Write(p)
	return nil
}

// writeLines writes the complete lines and buffers the rest.
func (f *fileWriter) writeLines(p []byte) error {
	for {
		line, rest, complete := bytes.Cut(p, []byte("\n"))
		if err := f.bufferPart(line); err != nil || !complete {
			return err
		}
		if err := f.flushLine(); err != nil {
			return err
		}
		p = rest
	}
}

// flushLine writes the buffered line if it is visible.
func (f *fileWriter) flushLine() error {
	defer f.line.Reset()
	if len(bytes.TrimSpace(f.line.Bytes())) == 0 {
		return nil
	}
	visible, err := f.isVisible(f.line.Bytes())
	switch {
	case err != nil:
		return message.NewWithheldError(err)
	case !visible:
		return nil
	case f.client == nil:
		return errVisibleLine
	}
	f.sendHeader()
	if f.isHead {
		return nil
	}
	_, err = f.client.Write(append(f.line.Bytes(), '\n'))
	return err
}

// sendHeader sends the header unless it has been sent.
func (f *fileWriter) sendHeader() {
	if f.headerSent {
		return
	}
	f.headerSent = true
	f.client.Header().Set("Content-Type", typeNDJSON)
	if expires := f.header.Get("Expires"); expires != "" {
		f.client.Header().Set("Expires", expires)
	}
	f.client.WriteHeader(http.StatusOK)
}

// FlushError flushes the written lines.
func (f *fileWriter) FlushError() error {
	if !f.headerSent {
		return nil
	}
	return http.NewResponseController(f.client).Flush()
}

// endFile writes the last line of a file, or returns an error if the FHIR server failed or the file is malformed.
func (f *fileWriter) endFile() error {
	switch {
	case f.status == 0:
		return message.NewWithheldError(message.ErrNoResponse)
	case f.status != http.StatusOK:
		return operation.Failure(&message.Response{Status: f.status, Header: f.header}, nil)
	case !f.isBinary() || f.line.Len() == 0:
		return f.flushLine()
	}
	content, err := unwrapBinary(f.line.Bytes())
	if err != nil {
		return message.NewWithheldError(err)
	}
	f.line.Reset()
	if err := f.writeLines(content); err != nil {
		return err
	}
	return f.flushLine()
}

// unwrapBinary returns the NDJSON in a Binary.
func unwrapBinary(text []byte) ([]byte, error) {
	var binary struct {
		ResourceType, ContentType string
		Data                      []byte // base64 in JSON
	}
	if err := json.Unmarshal(text, &binary); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotNDJSON, err)
	}
	if binary.ResourceType != "Binary" || !isNDJSON(binary.ContentType) {
		return nil, fmt.Errorf("%w: %s with content type %q", errNotNDJSON, binary.ResourceType, binary.ContentType)
	}
	return binary.Data, nil
}

// isNDJSON reports whether a media type is NDJSON.
func isNDJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && strings.HasSuffix(media, "ndjson")
}

// finish ends the client's response. If an error occurs after the first lines were sent, it aborts the connection, so that the
// client does not mistake the file for complete.
func (f *fileWriter) finish(err error) error {
	switch {
	case err == nil:
		f.sendHeader()
	case f.headerSent:
		panic(http.ErrAbortHandler)
	}
	return err
}
