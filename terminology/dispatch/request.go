package dispatch

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// cacheID is the parameter that refers to definitions sent in earlier requests.
const cacheID = "cache-id"

// isPersonal reports whether the response can be used only by this client, because the request depends on earlier ones of the
// client or overrides a limit.
func isPersonal(r *http.Request) bool {
	return len(r.Header["X-Cache-Id"]) > 0 || len(r.Header["X-Too-Costly-Threshold"]) > 0 || hasCacheID(r.URL.RawQuery)
}

// hasCacheID reports whether a query string has the cache-id parameter, escaped or not.
func hasCacheID(query string) bool {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		name, _, _ := strings.Cut(pair, "=")
		if strings.Contains(name, "%") {
			name, _ = url.QueryUnescape(name)
		}
		if name == cacheID {
			return true
		}
	}
	return false
}

// mentionsCacheID reports whether a body may contain the cache-id parameter, even in unnecessary JSON or XML escapes.
func mentionsCacheID(body []byte) bool {
	for _, sign := range []string{cacheID, `\u00`, "&#"} {
		if bytes.Contains(body, []byte(sign)) {
			return true
		}
	}
	return hasCacheID(string(body))
}

// request is a request for an operation. It is parsed once. Producers may use it after the client's request has ended.
type request struct {
	dispatcher *Dispatcher
	local      operation // serves the request locally
	next       NextHandler
	path       string   // path below the FHIR base, e.g. ValueSet/$expand
	isPersonal bool     // whether the response is only for this client
	schemes    *schemes // key schemes; nil disables the cache
	record     requestRecord
	hash       uint64 // hash in admission; 0 if not recorded
	body       []byte // body of a POST; nil until read
}

// schemes contains the cache key schemes for responses based on a library.
type schemes struct {
	library *terminology.Library
	seed    uint64       // seed of hashes in admission, specific to the library
	shared  cache.Scheme // for responses shared by all clients
	next    cache.Scheme // for responses from the next handler
}

func (f *Dispatcher) newRequest(r *http.Request, next NextHandler, local operation) *request {
	path := strings.TrimPrefix(r.URL.Path, f.options.Base+"/")
	q := &request{dispatcher: f, local: local, next: next, isPersonal: isPersonal(r), path: path}
	if f.state.cache != nil && !q.isPersonal {
		q.schemes = f.currentSchemes()
	}
	if q.schemes != nil && r.Method != http.MethodPost {
		q.hash = f.admission.requestHash(r, q.schemes.seed)
		q.record = f.admission.lookUp(q.hash)
	}
	return q
}

func (f *Dispatcher) currentSchemes() *schemes {
	library := f.options.Handler.CurrentLibrary()
	if s := f.schemes.Load(); s != nil && s.library == library {
		return s
	}
	epoch := f.options.Epoch(library)
	s := &schemes{
		library: library, seed: f.admission.seed(epoch),
		shared: cache.Scheme{Namespace: "shared", Epoch: epoch, VaryBy: cache.VaryByNone},
		next:   cache.Scheme{Namespace: "next", Epoch: epoch, VaryBy: f.options.VaryBy, Headers: f.options.VaryHeaders},
	}
	f.schemes.Store(s)
	return s
}

// readBody reads the body of a POST and restores it for the next reader. It updates isPersonal, which may depend on the body.
func (q *request) readBody(r *http.Request) (err error) {
	if r.Method != http.MethodPost {
		return nil
	}
	if q.body, err = io.ReadAll(r.Body); err != nil {
		return err
	}
	q.isPersonal = q.isPersonal || mentionsCacheID(q.body)
	r.Body = io.NopCloser(bytes.NewReader(q.body))
	return nil
}

// admission records recent requests and whether the next handler served them. Most requests sent while a user types are never
// repeated, so a request that is seen for the first time skips the cache. Repeated requests are stored in a separate table, so
// that others cannot evict them. A wrong record is harmless.
type admission struct {
	hashSeed  maphash.Seed
	seenOnce  [1 << hashBits]atomic.Uint64
	seenOften [1 << hashBits]atomic.Uint64
}

const hashBits = 16

// requestRecord is the state of a request in [admission].
type requestRecord uint8

const (
	neverSeen requestRecord = iota
	seenBefore
	servedByNext // repeated, and served by the next handler
)

func newAdmission() *admission { return &admission{hashSeed: maphash.MakeSeed()} }

func (s *admission) seed(epoch string) uint64 { return maphash.String(s.hashSeed, epoch) }

// requestHash returns a nonzero even hash of a request. The lowest bit is reserved for recordNext.
func (s *admission) requestHash(r *http.Request, seed uint64) uint64 {
	var h maphash.Hash
	h.SetSeed(s.hashSeed)
	maphash.WriteComparable(&h, seed)
	for _, text := range [...]string{r.Host, r.URL.Path, r.URL.RawQuery} {
		_, _ = h.WriteString(text)
		_ = h.WriteByte(0)
	}
	for _, name := range [...]string{"Accept", "Accept-Language"} {
		for _, value := range r.Header[name] {
			_, _ = h.WriteString(value)
			_ = h.WriteByte(0)
		}
	}
	return h.Sum64()&^1 | 2
}

// lookUp returns the record of a request and updates the tables.
func (s *admission) lookUp(n uint64) requestRecord {
	slot := n >> (64 - hashBits)
	recent := s.seenOften[slot].Load()
	if recent|1 != n|1 {
		if recent = s.seenOnce[slot].Load(); recent|1 != n|1 {
			s.seenOnce[slot].Store(n)
			return neverSeen
		}
		s.seenOften[slot].Store(recent)
	}
	if recent == n {
		return seenBefore
	}
	return servedByNext
}

// recordNext records that the next handler served a request.
func (s *admission) recordNext(n uint64) {
	slot := n >> (64 - hashBits)
	for _, list := range []*atomic.Uint64{&s.seenOnce[slot], &s.seenOften[slot]} {
		list.CompareAndSwap(n, n|1)
	}
}

// serveStored serves a request through the cache, with a response shared by all clients or else one of the next handler. If a
// local response is too large to store, it is computed again. If a response from the next handler is too large, result.missing
// is set.
func (q *request) serveStored(w http.ResponseWriter, r *http.Request) result {
	f, s := q.dispatcher, q.schemes
	call := cache.Call{Scheme: &s.shared, Body: q.body, Detach: f.host.Server.Detach, WriteLocalHeader: f.host.WriteLocalHeader}
	d := &errForwardToNext
	if q.record != servedByNext {
		call.Principal, call.Produce = f.host.Guard.Client(r.Context()), q.produceShared
		err := f.state.cache.Serve(w, r, &call)
		if d = forwardErrorOf(err); d == nil {
			return newWrittenResult(OutcomeStored, err)
		}
	}
	if d.destination == viaNextCache {
		if q.hash != 0 {
			f.admission.recordNext(q.hash)
		}
		call.Scheme, call.Principal, call.Produce = &s.next, f.host.Guard.Principal(r.Context()), q.produceForNext
		err := f.state.cache.Serve(w, r, &call)
		if d = forwardErrorOf(err); d == nil {
			return newWrittenResult(OutcomeNext, err)
		}
	}
	if d.destination == directToLocal {
		return q.serveLocal(w, r)
	}
	return result{missing: d.missing}
}

// newWrittenResult returns the result of a handler that wrote its response unless err is set.
func newWrittenResult(by Outcome, err error) result {
	if err != nil {
		return result{err: err}
	}
	return result{source: by}
}

// produceShared produces a response for all clients, locally or through an upstream.
func (q *request) produceShared(r *http.Request) (*cache.Response, error) {
	produced := q.produceResult(r)
	if produced.missing != nil {
		return nil, &forwardError{viaNextCache, produced.missing}
	}
	return produced.response, produced.err
}

func (q *request) produceForNext(r *http.Request) (*cache.Response, error) {
	produced := q.produceResult(r)
	if produced.missing != nil {
		produced = q.callNext(r, produced.missing)
	}
	return produced.response, produced.failure()
}

// produceResult produces a response locally or through an upstream, without forwardError.
func (q *request) produceResult(r *http.Request) result {
	local := q.produceLocal(r)
	if local.missing == nil {
		return local
	}
	return q.callUpstream(r, local.missing)
}

// serveLocal serves the request locally and writes directly to the client, without buffering.
func (q *request) serveLocal(w http.ResponseWriter, r *http.Request) result {
	header := w.Header()
	if q.schemes != nil {
		header["Cache-Status"], header["Cache-Control"] = cacheStatusMiss, q.dispatcher.localCacheControl
		if q.dispatcher.isAuthorised(r) {
			header["Cache-Control"] = q.dispatcher.privateCacheControl
		}
	}
	err := q.local(q.dispatcher.newLocalWriter(w), r)
	if err == nil {
		return result{source: OutcomeLocal}
	}
	if q.schemes != nil {
		delete(header, "Cache-Status")
		delete(header, "Cache-Control")
	}
	return resultOf(err)
}

// localWriter starts local responses with WriteLocalHeader.
type localWriter struct {
	http.ResponseWriter
	writeHeader func(w http.ResponseWriter, status int)
}

func (f *Dispatcher) newLocalWriter(w http.ResponseWriter) http.ResponseWriter {
	if f.host.WriteLocalHeader == nil {
		return w
	}
	return &localWriter{w, f.host.WriteLocalHeader}
}

// WriteHeader implements http.ResponseWriter.
func (w *localWriter) WriteHeader(status int) { w.writeHeader(w.ResponseWriter, status) }

// Unwrap returns the underlying writer, for http.ResponseController.
func (w *localWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// cacheStatusMiss is the Cache-Status of local responses that are not stored (RFC 9211).
var cacheStatusMiss = []string{"caddy-fhir; fwd=miss"}

// produceLocal produces a local response for the cache.
func (q *request) produceLocal(r *http.Request) result {
	recorder := remote.NewRecorder(maxStoredLocalSize)
	err := q.local(recorder, r)
	switch {
	case recorder.IsTruncated():
		return result{err: &forwardError{destination: directToLocal}}
	case err != nil:
		return resultOf(err)
	}
	a := recordedResponse(recorder)
	a.IsLocal = true
	if a.Status == http.StatusOK { // clients may have received this entity tag before the response was stored
		a.EntityTag, a.Tags = strings.Trim(a.Header.Get("Etag"), `"`), definitionsOf(a.Body)
		if a.Tags != nil && isInstance(q.path) { // writing a resource with this ID must invalidate the response
			a.Tags = append(a.Tags, path.Dir(q.path))
		}
	}
	return result{response: a}
}

func recordedResponse(by *remote.Recorder) *cache.Response {
	return &cache.Response{Status: by.Status(), Header: by.Header(), Body: by.Body()}
}

// maxStoredLocalSize is the maximum size of a stored local response in bytes. Larger ones are as fast to compute as to copy.
const maxStoredLocalSize = 2 << 20

// isFetchFailure reports whether a definition could not be fetched, so a stale response is preferable.
func isFetchFailure(err error) bool {
	failed, ok := errors.AsType[*outcome.Error](err)
	return ok && failed.Status > http.StatusInternalServerError && !errors.Is(err, budget.ErrBusy)
}

// usedDefinitions contains the members of an expansion that identify the definitions it was computed from.
type usedDefinitions struct {
	URL  string `json:"url"`
	Meta struct {
		Tag []struct {
			Code string `json:"code"`
		} `json:"tag"`
	} `json:"meta"`
	Expansion struct {
		Parameter []struct {
			Name string `json:"name"`
			URI  string `json:"valueUri"`
		} `json:"parameter"`
		Contains []usedSystem `json:"contains"`
	} `json:"expansion"`
}

type usedSystem struct {
	System   string       `json:"system"`
	Contains []usedSystem `json:"contains"`
}

// definitionsOf returns the canonicals that an expansion depends on: the value set, its used definitions, and the code systems
// of its codes. It returns nil for an incomplete expansion, which the change of any definition invalidates.
func definitionsOf(body []byte) (tags []string) {
	var expansion usedDefinitions
	if json.Unmarshal(body, &expansion, jsontext.AllowDuplicateNames(true)) != nil || expansion.URL == "" || len(expansion.Meta.Tag) > 0 {
		return nil
	}
	seen := map[string]bool{expansion.URL: true}
	for _, p := range expansion.Expansion.Parameter {
		if strings.HasPrefix(p.Name, "used-") {
			seen[p.URI] = true
		}
	}
	addSystems(seen, expansion.Expansion.Contains)
	return slices.Collect(maps.Keys(seen))
}

func addSystems(to map[string]bool, list []usedSystem) {
	for i := range list {
		to[list[i].System] = true
		addSystems(to, list[i].Contains)
	}
	delete(to, "")
}

func (f *Dispatcher) isAuthorised(r *http.Request) bool {
	return len(r.Header["Authorization"]) > 0 || len(r.Header["Cookie"]) > 0 || f.host.Guard.Client(r.Context()) != (cache.Principal{})
}

// callUpstream calls the terminology server. result.missing is set if only the next handler can serve the request, e.g. for a
// resource ID. If the server lacks a definition too, the local error is returned because it is more helpful.
func (q *request) callUpstream(r *http.Request, m *missingDefinition) result {
	f := q.dispatcher
	if f.state.routes == nil || strings.Count(q.path, "/") > 1 {
		return result{missing: m}
	}
	parsed := q.parseForRemote(r)
	subject := remote.SubjectOf(parsed)
	server := f.state.routes.Server(subject.WithMissing(m.err))
	if server == nil {
		return result{missing: m}
	}
	if fromFull, err := f.state.fullExpansions.Respond(server, parsed, f.options.Handler.CurrentLibrary().Definitions().Synonyms()); err != nil {
		return result{err: err}
	} else if fromFull != nil {
		return result{response: toCacheResponse(fromFull)}
	}
	start := time.Now()
	remoteResponse, err := server.Do(r.Context(), parsed.Request)
	f.host.Metrics.ObserveUpstream(r.Context(), time.Since(start), err)
	switch {
	case err != nil:
		err = f.host.ReportFailure(server.Base(), err)
		if stale, _ := f.state.fullExpansions.RespondStale(server, parsed, f.options.Handler.CurrentLibrary().Definitions().Synonyms()); stale != nil && !errors.Is(err, context.Canceled) {
			return result{response: toCacheResponse(stale)}
		}
		return result{err: newUnavailableError(m.errorAfterUpstream(err), err)}
	case remoteResponse.IsNegative() && !m.definitionUnknown:
		return m.toResult()
	}
	response, right := acceptResponse(parsed, subject.ValueSet, remoteResponse)
	if right {
		f.state.fullExpansions.RecordResponse(server, parsed, remoteResponse)
	}
	return result{response: response}
}

// parseForRemote returns the request as other servers receive it.
func (q *request) parseForRemote(r *http.Request) remote.ParsedRequest {
	return remote.ParseRequest(remote.Request{
		Method: r.Method, Path: q.path, Query: r.URL.RawQuery, Body: q.body, ContentType: r.Header.Get("Content-Type"),
		Accept: r.Header.Get("Accept"), AcceptLanguage: negotiation.NormalizeLanguages(r.Header["Accept-Language"]), IfNoneMatch: r.Header.Get("If-None-Match"),
	})
}

const nextHandlerName = "next handler"

// callNext requests a response for the cache from the next handler. It fails if the handler's Retry-After has not elapsed.
func (q *request) callNext(r *http.Request, m *missingDefinition) result {
	f := q.dispatcher
	if err := f.state.backoff.Err(""); err != nil {
		return result{err: newUnavailableError(m.errorAfterNext(err), err)}
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), f.options.NextTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	recorder := remote.NewRecorder(remote.DefaultMaxResponseSize)
	request := q.requestForNext(r, recorder)
	err := recorder.Record(func(w http.ResponseWriter) error { return q.next.ServeHTTP(w, request) })
	f.host.Metrics.ObserveNext(r.Context(), time.Since(start), err)
	wait := f.state.backoff.RecordRetryAfter(recorder.Status(), recorder.Header(), false)
	switch {
	case recorder.IsTruncated() && remote.MayBeResponse(q.path, recorder.Header(), recorder.Body()):
		return result{err: &forwardError{directToNext, m}}
	case recorder.IsTruncated():
		_, err = recorder.Response(q.path) // returns the error for an oversized response
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		if !errors.Is(err, context.DeadlineExceeded) {
			err = errors.Join(ctx.Err(), err)
		}
	case err == nil && recorder.Status() == 0:
		return result{missing: m}
	case err == nil:
		return q.readNextResponse(r, recorder, m)
	}
	err = f.host.ReportFailure(nextHandlerName, err)
	return result{err: &cache.UnavailableError{RetryAfter: wait, Err: m.errorAfterNext(err)}}
}

// requestForNext returns the request to send to the next handler for a response that clients can share.
func (q *request) requestForNext(r *http.Request, recorder *remote.Recorder) *http.Request {
	request := remote.WithRecordableHeaders(q.dispatcher.host.Server.Prepare(recorder, r))
	if q.body != nil { // the next handler needs an unread body
		request.Body = io.NopCloser(bytes.NewReader(q.body))
	}
	if condition := r.Header.Get("If-None-Match"); condition != "" {
		request.Header.Set("If-None-Match", condition)
	}
	return request
}

func (q *request) readNextResponse(r *http.Request, recorder *remote.Recorder, m *missingDefinition) result {
	if recorder.Status() == http.StatusNotModified && r.Header.Get("If-None-Match") != "" {
		return result{response: &cache.Response{Status: http.StatusNotModified, Header: recorder.Header()}}
	}
	remoteResponse, err := recorder.Response(q.path)
	switch {
	case err == nil && remoteResponse.IsNegative() && !m.definitionUnknown:
		return m.toResult()
	case err == nil:
		parsed := q.parseForRemote(r)
		response, _ := acceptResponse(parsed, remote.SubjectOf(parsed).ValueSet, remoteResponse)
		return result{response: withCookies(response, recorder)}
	case m.definitionUnknown && recorder.Status() >= http.StatusMultipleChoices && isForwardedToClient(recorder):
		return result{response: recordedResponse(recorder)}
	}
	if !errors.Is(err, remote.ErrRejected) { // the server rejected only this client's request
		err = q.dispatcher.host.ReportFailure(nextHandlerName, err)
	}
	return result{err: newUnavailableError(m.errorAfterNext(err), err)}
}

// isForwardedToClient reports whether an unsuccessful response is passed to the client: a redirect, a client error, or a server
// error with an OperationOutcome.
func isForwardedToClient(recorder *remote.Recorder) bool {
	return recorder.Status() < http.StatusInternalServerError || bytes.Contains(recorder.Body(), []byte(`"OperationOutcome"`))
}

// withCookies returns the response with the server's cookies, which prevent it from being stored.
func withCookies(a *cache.Response, recorder *remote.Recorder) *cache.Response {
	if cookies := recorder.Header()["Set-Cookie"]; len(cookies) > 0 {
		a.Header = maps.Clone(a.Header)
		a.Header["Set-Cookie"] = cookies
	}
	return a
}

// streamNext streams the next handler's response to the client. local is the error of the attempt to serve the request locally.
func (q *request) streamNext(w http.ResponseWriter, r *http.Request, local error) result {
	if errors.Is(local, outcome.ErrUnknown) {
		return q.forwardUnknown(w, r, local)
	}
	return q.forwardIncomplete(w, r, local)
}

// forwardUnknown streams any response from the next handler, because only the next handler can have the value set. It returns
// the local error if there is no next handler.
func (q *request) forwardUnknown(w http.ResponseWriter, r *http.Request, local error) result {
	if responded, err := q.dispatcher.tryNext(w, r, q.next); responded || err != nil {
		return result{source: OutcomeNext, err: err}
	}
	return result{err: local}
}

// forwardIncomplete streams the next handler's response if it is successful. Otherwise, it returns the local error.
func (q *request) forwardIncomplete(w http.ResponseWriter, r *http.Request, local error) result {
	header := w.Header().Clone()
	writer := &responseWriter{ResponseWriter: w, shouldDrop: func(status int) bool { return status >= http.StatusBadRequest }}
	err := q.dispatcher.measureNext(writer, r, q.next)
	if err == nil && writer.status != 0 && !writer.isDropped {
		return result{source: OutcomeNext}
	}
	clear(w.Header()) // discards the headers of the dropped response
	maps.Copy(w.Header(), header)
	return result{err: local}
}

// tryNext streams the next handler's response and reports whether there was a response.
func (f *Dispatcher) tryNext(w http.ResponseWriter, r *http.Request, next NextHandler) (responded bool, err error) {
	writer := &responseWriter{ResponseWriter: w}
	err = f.measureNext(writer, r, next)
	return writer.status != 0, err
}

func (f *Dispatcher) measureNext(w http.ResponseWriter, r *http.Request, next NextHandler) (err error) {
	start := time.Now()
	defer func() { f.host.Metrics.ObserveNext(r.Context(), time.Since(start), err) }()
	return next.ServeHTTP(w, r)
}
