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

// cacheID is the parameter that refers to definitions of earlier requests.
const cacheID = "cache-id"

// isPersonal reports whether only this client can use the response, because it depends on earlier requests of the
// client or overrides a limit.
func isPersonal(r *http.Request) bool {
	return len(r.Header["X-Cache-Id"]) > 0 || len(r.Header["X-Too-Costly-Threshold"]) > 0 || hasCacheID(r.URL.RawQuery)
}

// hasCacheID reports whether a query string has the parameter cache-id, escaped or not.
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

// mentionsCacheID reports whether a body may contain the parameter, possibly hidden by unnecessary JSON or XML escapes.
func mentionsCacheID(body []byte) bool {
	for _, sign := range []string{cacheID, `\u00`, "&#"} {
		if bytes.Contains(body, []byte(sign)) {
			return true
		}
	}
	return hasCacheID(string(body))
}

// request is a request for an operation, parsed once. Producers may use it after the client's request has ended.
type request struct {
	front    *Dispatcher
	local    operation // serves the request locally
	next     NextHandler
	path     string   // path below the FHIR base: ValueSet/$expand
	personal bool     // the response is only for this client
	schemes  *schemes // schemes of keys; nil disables the cache
	known    requestRecord
	number   uint64 // number in the sightings; 0 if none
	body     []byte // body of a POST; nil until read
}

// schemes contains the key schemes of the responses based on a library.
type schemes struct {
	library *terminology.Library
	seed    uint64       // identifies the library in sightings
	shared  cache.Scheme // for responses shared by all clients
	next    cache.Scheme // for responses of the next handler
}

func (f *Dispatcher) newRequest(r *http.Request, next NextHandler, local operation) *request {
	path := strings.TrimPrefix(r.URL.Path, f.options.Base+"/")
	q := &request{front: f, local: local, next: next, personal: isPersonal(r), path: path}
	if f.state.cache != nil && !q.personal {
		q.schemes = f.currentSchemes()
	}
	if q.schemes != nil && r.Method != http.MethodPost {
		q.number = f.sightings.number(r, q.schemes.seed)
		q.known = f.sightings.look(q.number)
	}
	return q
}

func (f *Dispatcher) currentSchemes() *schemes {
	library := f.options.Handler.Current()
	if s := f.schemes.Load(); s != nil && s.library == library {
		return s
	}
	epoch := f.options.Epoch(library)
	s := &schemes{
		library: library, seed: f.sightings.seed(epoch),
		shared: cache.Scheme{Space: "shared", Epoch: epoch, VaryBy: cache.VaryByNone},
		next:   cache.Scheme{Space: "next", Epoch: epoch, VaryBy: f.options.VaryBy, Headers: f.options.VaryHeaders},
	}
	f.schemes.Store(s)
	return s
}

// readBody reads the body of a POST, which may make the request personal, and restores it. The local operation may have
// read it before.
func (q *request) readBody(r *http.Request) (err error) {
	if r.Method != http.MethodPost {
		return nil
	}
	if q.body, err = io.ReadAll(r.Body); err != nil {
		return err
	}
	q.personal = q.personal || mentionsCacheID(q.body)
	r.Body = io.NopCloser(bytes.NewReader(q.body))
	return nil
}

// admission records recent requests and whether the next handler served them. Most requests of a user who types letter
// by letter are never repeated, so a request seen for the first time skips the cache. Repeated requests have a separate
// table, so that others do not evict them. A wrong entry is harmless.
type admission struct {
	hash  maphash.Seed
	once  [1 << sightingBits]atomic.Uint64
	often [1 << sightingBits]atomic.Uint64
}

const sightingBits = 16

// requestRecord is the record of a request.
type requestRecord uint8

const (
	unseen requestRecord = iota
	seen
	seenNext // served by the next handler
)

func newAdmission() *admission { return &admission{hash: maphash.MakeSeed()} }

func (s *admission) seed(epoch string) uint64 { return maphash.String(s.hash, epoch) }

// number returns a nonzero even hash of a request.
func (s *admission) number(r *http.Request, seed uint64) uint64 {
	var h maphash.Hash
	h.SetSeed(s.hash)
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

// look returns the record of a request and updates the tables.
func (s *admission) look(n uint64) requestRecord {
	slot := n >> (64 - sightingBits)
	known := s.often[slot].Load()
	if known|1 != n|1 {
		if known = s.once[slot].Load(); known|1 != n|1 {
			s.once[slot].Store(n)
			return unseen
		}
		s.often[slot].Store(known)
	}
	if known == n {
		return seen
	}
	return seenNext
}

// isNext records that the next handler served a request.
func (s *admission) isNext(n uint64) {
	slot := n >> (64 - sightingBits)
	for _, list := range []*atomic.Uint64{&s.once[slot], &s.often[slot]} {
		list.CompareAndSwap(n, n|1)
	}
}

// serveStored serves a request through the cache, with a response shared by all clients, otherwise a response of the next
// handler. Local responses too large to store are computed again. For those of the next handler, the result is missing.
func (q *request) serveStored(w http.ResponseWriter, r *http.Request) result {
	f, s := q.front, q.schemes
	call := cache.Call{Scheme: &s.shared, Body: q.body, Detach: f.host.Server.Detach, WriteLocalHeader: f.host.WriteLocalHeader}
	d := &toNext
	if q.known != seenNext {
		call.Principal, call.Produce = f.host.Guard.Client(r.Context()), q.produceShared
		err := f.state.cache.Serve(w, r, &call)
		if d = detourOf(err); d == nil {
			return written(Stored, err)
		}
	}
	if d.to == nextStored {
		if q.number != 0 {
			f.sightings.isNext(q.number)
		}
		call.Scheme, call.Principal, call.Produce = &s.next, f.host.Guard.Principal(r.Context()), q.produceOwn
		err := f.state.cache.Serve(w, r, &call)
		if d = detourOf(err); d == nil {
			return written(Next, err)
		}
	}
	if d.to == hereStraight {
		return q.serveHere(w, r)
	}
	return result{missing: d.missing}
}

// written returns the result of a handler that wrote a response unless it returned an error.
func written(by Outcome, err error) result {
	if err != nil {
		return result{err: err}
	}
	return result{by: by}
}

// produceShared produces a response for all clients, locally or through an upstream.
func (q *request) produceShared(r *http.Request) (*cache.Answer, error) {
	made := q.make(r)
	if made.missing != nil {
		return nil, &forwardError{nextStored, made.missing}
	}
	return made.answer, made.err
}

func (q *request) produceOwn(r *http.Request) (*cache.Answer, error) {
	made := q.make(r)
	if made.missing != nil {
		made = q.askNext(r, made.missing)
	}
	return made.answer, made.failure()
}

// make produces a response locally or through an upstream.
func (q *request) make(r *http.Request) result {
	here := q.makeHere(r)
	if here.missing == nil {
		return here
	}
	return q.askUpstream(r, here.missing)
}

// serveHere serves the client locally, without buffering.
func (q *request) serveHere(w http.ResponseWriter, r *http.Request) result {
	header := w.Header()
	if q.schemes != nil {
		header["Cache-Status"], header["Cache-Control"] = missed, q.front.public
		if q.front.isAuthorised(r) {
			header["Cache-Control"] = q.front.private
		}
	}
	err := q.local(q.front.own(w), r)
	if err == nil {
		return result{by: Here}
	}
	if q.schemes != nil {
		delete(header, "Cache-Status")
		delete(header, "Cache-Control")
	}
	return resultOf(err)
}

// ownWriter starts a local response with WriteLocalHeader.
type ownWriter struct {
	http.ResponseWriter
	begin func(w http.ResponseWriter, status int)
}

func (f *Dispatcher) own(w http.ResponseWriter) http.ResponseWriter {
	if f.host.WriteLocalHeader == nil {
		return w
	}
	return &ownWriter{w, f.host.WriteLocalHeader}
}

// WriteHeader implements http.ResponseWriter.
func (w *ownWriter) WriteHeader(status int) { w.begin(w.ResponseWriter, status) }

// Unwrap returns the underlying writer, for http.ResponseController.
func (w *ownWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// missed is the Cache-Status of local responses that are not stored (RFC 9211).
var missed = []string{"caddy-fhir; fwd=miss"}

// makeHere produces a local response to be stored.
func (q *request) makeHere(r *http.Request) result {
	recorder := remote.NewRecorder(maxHeldHere)
	err := q.local(recorder, r)
	switch {
	case recorder.IsTruncated():
		return result{err: &forwardError{to: hereStraight}}
	case err != nil:
		return resultOf(err)
	}
	a := recorded(recorder)
	a.IsLocal = true
	if a.Status == http.StatusOK { // keeps the entity tag, which clients may have received before the response was stored
		a.EntityTag, a.Tags = strings.Trim(a.Header.Get("Etag"), `"`), definitionsOf(a.Body)
		if a.Tags != nil && isInstance(q.path) { // a write of a resource with this ID must invalidate the response
			a.Tags = append(a.Tags, path.Dir(q.path))
		}
	}
	return result{answer: a}
}

func recorded(by *remote.Recorder) *cache.Answer {
	return &cache.Answer{Status: by.Status(), Header: by.Header(), Body: by.Body()}
}

// maxHeldHere is the maximum size of a stored local response in bytes. Computing a larger one again is as fast as
// copying it.
const maxHeldHere = 2 << 20

// isFetchFailure reports whether fetching a definition failed, so that a stale response is preferable.
func isFetchFailure(err error) bool {
	failed, ok := errors.AsType[*outcome.Error](err)
	return ok && failed.Status > http.StatusInternalServerError && !errors.Is(err, budget.ErrBusy)
}

// madeOf contains the members of an expansion that identify its definitions.
type madeOf struct {
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
		Contains []madeOfSystem `json:"contains"`
	} `json:"expansion"`
}

type madeOfSystem struct {
	System   string         `json:"system"`
	Contains []madeOfSystem `json:"contains"`
}

// definitionsOf returns the canonicals that an expansion depends on: the value set, its used definitions, and the code
// systems of its codes. It returns nil for an incomplete expansion, which any change of a definition invalidates.
func definitionsOf(body []byte) (tags []string) {
	var made madeOf
	if json.Unmarshal(body, &made, jsontext.AllowDuplicateNames(true)) != nil || made.URL == "" || len(made.Meta.Tag) > 0 {
		return nil
	}
	seen := map[string]bool{made.URL: true}
	for _, p := range made.Expansion.Parameter {
		if strings.HasPrefix(p.Name, "used-") {
			seen[p.URI] = true
		}
	}
	addSystems(seen, made.Expansion.Contains)
	return slices.Collect(maps.Keys(seen))
}

func addSystems(to map[string]bool, list []madeOfSystem) {
	for i := range list {
		to[list[i].System] = true
		addSystems(to, list[i].Contains)
	}
	delete(to, "")
}

func (f *Dispatcher) isAuthorised(r *http.Request) bool {
	return len(r.Header["Authorization"]) > 0 || len(r.Header["Cookie"]) > 0 || f.host.Guard.Client(r.Context()) != (cache.Principal{})
}

// askUpstream calls the terminology server. The result is missing if only the next handler can serve the request, as
// for a resource ID. If the server lacks a definition too, the local error is the better response.
func (q *request) askUpstream(r *http.Request, m *missing) result {
	f := q.front
	if f.state.routes == nil || strings.Count(q.path, "/") > 1 {
		return result{missing: m}
	}
	asked := q.asking(r)
	subject := remote.SubjectOf(asked)
	server := f.state.routes.Server(subject.WithMissing(m.err))
	if server == nil {
		return result{missing: m}
	}
	if whole, err := f.state.wholes.Answer(server, asked, f.options.Handler.Current().Definitions().Synonyms()); err != nil {
		return result{err: err}
	} else if whole != nil {
		return result{answer: answerOf(whole)}
	}
	start := time.Now()
	theirs, err := server.Ask(r.Context(), asked.Request)
	f.host.Metrics.UpstreamTook(r.Context(), time.Since(start), err)
	switch {
	case err != nil:
		err = f.host.Failed(server.Base(), err)
		if stale, _ := f.state.wholes.StaleAnswer(server, asked, f.options.Handler.Current().Definitions().Synonyms()); stale != nil && !errors.Is(err, context.Canceled) {
			return result{answer: answerOf(stale)}
		}
		return result{err: unavailable(m.afterUpstream(err), err)}
	case theirs.Negative() && !m.unknown:
		return m.answer()
	}
	answer, right := accepted(asked, subject.ValueSet, theirs)
	if right {
		f.state.wholes.RecordResponse(server, asked, theirs)
	}
	return result{answer: answer}
}

// asking returns the request in the form for other servers.
func (q *request) asking(r *http.Request) remote.Question {
	return remote.ParseQuestion(remote.Request{
		Method: r.Method, Path: q.path, Query: r.URL.RawQuery, Body: q.body, ContentType: r.Header.Get("Content-Type"),
		Accept: r.Header.Get("Accept"), AcceptLanguage: negotiation.Languages(r.Header["Accept-Language"]), IfNoneMatch: r.Header.Get("If-None-Match"),
	})
}

const nextHandler = "next handler"

// askNext requests a response to be stored from the next handler, unless its Retry-After has not yet elapsed.
func (q *request) askNext(r *http.Request, m *missing) result {
	f := q.front
	if err := f.state.backoff.Err(""); err != nil {
		return result{err: unavailable(m.afterNext(err), err)}
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), f.options.NextTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	recorder := remote.NewRecorder(remote.DefaultMaxAnswer)
	request := q.forNext(r, recorder)
	err := recorder.Record(func(w http.ResponseWriter) error { return q.next.ServeHTTP(w, request) })
	f.host.Metrics.NextTook(r.Context(), time.Since(start), err)
	wait := f.state.backoff.RecordRetryAfter(recorder.Status(), recorder.Header(), false)
	switch {
	case recorder.IsTruncated() && remote.Begins(q.path, recorder.Header(), recorder.Body()):
		return result{err: &forwardError{nextStraight, m}}
	case recorder.IsTruncated():
		_, err = recorder.Answer(q.path) // returns the error for oversized responses
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		if !errors.Is(err, context.DeadlineExceeded) {
			err = errors.Join(ctx.Err(), err)
		}
	case err == nil && recorder.Status() == 0:
		return result{missing: m}
	case err == nil:
		return q.readNext(r, recorder, m)
	}
	err = f.host.Failed(nextHandler, err)
	return result{err: &cache.Unavailable{RetryAfter: wait, Err: m.afterNext(err)}}
}

// forNext returns the request for the next handler, for a response that can be shared.
func (q *request) forNext(r *http.Request, recorder *remote.Recorder) *http.Request {
	request := remote.Recordable(q.front.host.Server.Prepare(recorder, r))
	if q.body != nil { // the body must be readable again for the next handler
		request.Body = io.NopCloser(bytes.NewReader(q.body))
	}
	if condition := r.Header.Get("If-None-Match"); condition != "" {
		request.Header.Set("If-None-Match", condition)
	}
	return request
}

func (q *request) readNext(r *http.Request, recorder *remote.Recorder, m *missing) result {
	if recorder.Status() == http.StatusNotModified && r.Header.Get("If-None-Match") != "" {
		return result{answer: &cache.Answer{Status: http.StatusNotModified, Header: recorder.Header()}}
	}
	theirs, err := recorder.Answer(q.path)
	switch {
	case err == nil && theirs.Negative() && !m.unknown:
		return m.answer()
	case err == nil:
		asked := q.asking(r)
		answer, _ := accepted(asked, remote.SubjectOf(asked).ValueSet, theirs)
		return result{answer: withCookies(answer, recorder)}
	case m.unknown && recorder.Status() >= http.StatusMultipleChoices && isPassedToClient(recorder):
		return result{answer: recorded(recorder)}
	}
	if !errors.Is(err, remote.ErrRefused) { // a refusal concerns only this client
		err = q.front.host.Failed(nextHandler, err)
	}
	return result{err: unavailable(m.afterNext(err), err)}
}

// isPassedToClient reports whether an unsuccessful response is passed to the client: a redirect, a client error, or a failure
// with an OperationOutcome.
func isPassedToClient(recorder *remote.Recorder) bool {
	return recorder.Status() < http.StatusInternalServerError || bytes.Contains(recorder.Body(), []byte(`"OperationOutcome"`))
}

// withCookies adds the server's cookies, which prevent the response from being stored.
func withCookies(a *cache.Answer, recorder *remote.Recorder) *cache.Answer {
	if cookies := recorder.Header()["Set-Cookie"]; len(cookies) > 0 {
		a.Header = maps.Clone(a.Header)
		a.Header["Set-Cookie"] = cookies
	}
	return a
}

// streamNext streams the next handler's response to the client. here is the error of the local attempt.
func (q *request) streamNext(w http.ResponseWriter, r *http.Request, here error) result {
	if errors.Is(here, outcome.ErrUnknown) {
		return q.passUnknown(w, r, here)
	}
	return q.passIncomplete(w, r, here)
}

// passUnknown streams any response of the next handler, because only the next handler can have the value set. Without a
// next handler, it returns the local error.
func (q *request) passUnknown(w http.ResponseWriter, r *http.Request, here error) result {
	if answered, err := q.front.tryNextFirst(w, r, q.next); answered || err != nil {
		return result{by: Next, err: err}
	}
	return result{err: here}
}

// passIncomplete streams the next handler's response unless it is an error; the local one is more helpful.
func (q *request) passIncomplete(w http.ResponseWriter, r *http.Request, here error) result {
	header := w.Header().Clone()
	answer := &responseWriter{ResponseWriter: w, refused: func(status int) bool { return status >= http.StatusBadRequest }}
	err := q.front.measureNext(answer, r, q.next)
	if err == nil && answer.status != 0 && !answer.dropped {
		return result{by: Next}
	}
	clear(w.Header()) // headers of the dropped response
	maps.Copy(w.Header(), header)
	return result{err: here}
}

// tryNextFirst streams the next handler's response and reports whether the handler responded.
func (f *Dispatcher) tryNextFirst(w http.ResponseWriter, r *http.Request, next NextHandler) (answered bool, err error) {
	answer := &responseWriter{ResponseWriter: w}
	err = f.measureNext(answer, r, next)
	return answer.status != 0, err
}

func (f *Dispatcher) measureNext(w http.ResponseWriter, r *http.Request, next NextHandler) (err error) {
	start := time.Now()
	defer func() { f.host.Metrics.NextTook(r.Context(), time.Since(start), err) }()
	return next.ServeHTTP(w, r)
}
