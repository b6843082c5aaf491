package cache

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestRequestCollapsing sends a thousand concurrent requests, first for a missing response, then for a stale one.
func TestRequestCollapsing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{answer: func(*http.Request) (*Response, error) {
			time.Sleep(time.Second)
			return jsonAnswer(200, "one"), nil
		}}
		call := o.call()
		c := New(Options{TTL: time.Minute, StaleWhileRevalidate: time.Hour})
		herd := func() (collapsed int) {
			var mu sync.Mutex
			var all sync.WaitGroup
			for range 1000 {
				all.Go(func() {
					w := serve(t, c, get(expandURL), call)
					mu.Lock()
					defer mu.Unlock()
					if w.Body.String() != "one" {
						t.Errorf("body = %q", w.Body)
					}
					if strings.HasSuffix(w.Header().Get("Cache-Status"), "; collapsed") {
						collapsed++
					}
				})
			}
			all.Wait()
			return collapsed
		}
		if collapsed := herd(); collapsed != 999 {
			t.Errorf("%d were collapsed, want 999", collapsed)
		}
		checkCalls(t, o, 1)
		time.Sleep(2 * time.Minute)
		herd()
		time.Sleep(2 * time.Second)
		checkCalls(t, o, 2)
	})
}

// TestLate checks that requests use a stored response even if it was stored after their lookup.
func TestLate(t *testing.T) {
	o := newOrigin("one")
	c := New(Options{})
	call := o.call()
	var late [3]*fetch
	for n := range late {
		var err error
		if late[n], err = c.fetch(get(expandURL), call, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	for n, i := range late {
		res, collapsed, err := c.collapse(t.Context(), i)
		if err != nil || res.entry == nil || collapsed != (n > 0) {
			t.Errorf("%d: %+v, collapsed %t, %v", n, res, collapsed, err)
		}
	}
	checkCalls(t, o, 1)
}

// TestClientDisconnects checks that a client that disconnects does not cancel the response for other clients.
func TestClientDisconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{answer: func(r *http.Request) (*Response, error) {
			select {
			case <-time.After(time.Second):
				return jsonAnswer(200, "one"), nil
			case <-r.Context().Done():
				return nil, context.Cause(r.Context())
			}
		}}
		call := o.call()
		c := New(Options{})
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond) // client 0 must be first
				ctx := t.Context()
				if i%2 == 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
					defer cancel()
				}
				w := httptest.NewRecorder()
				err := c.Serve(w, get(expandURL).WithContext(ctx), call)
				if i%2 == 0 && (!errors.Is(err, context.DeadlineExceeded) || w.Body.Len() > 0) {
					t.Errorf("%d: %v, %q: want the end of its own patience", i, err, w.Body)
				}
				if i%2 == 1 && (err != nil || w.Body.String() != "one") {
					t.Errorf("%d: %v, %q", i, err, w.Body)
				}
			})
		}
		all.Wait()
		checkCalls(t, o, 1)
		expect(t, serve(t, c, get(expandURL), call), "one", "hit; ttl=3600")
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{answer: func(r *http.Request) (*Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		}}
		began := time.Now()
		err := New(Options{Timeout: time.Second}).Serve(httptest.NewRecorder(), get(expandURL), o.call())
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{answer: func(*http.Request) (*Response, error) {
			time.Sleep(time.Second)
			panic(http.ErrAbortHandler)
		}}
		call := o.call()
		c := New(Options{})
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				err := c.Serve(httptest.NewRecorder(), get(expandURL), call)
				var panicked *panicError
				if !errors.As(err, &panicked) || !errors.Is(err, http.ErrAbortHandler) {
					t.Errorf("err = %v, want a PanicError", err)
				}
			})
		}
		all.Wait()
		checkCalls(t, o, 1)
		o.answer = responds(http.StatusOK, "one")
		expect(t, serve(t, c, get(expandURL), call), "one", "fwd=miss; fwd-status=200; stored")
	})
	err := New(Options{}).Serve(httptest.NewRecorder(), get(expandURL), &Call{Scheme: plain, Produce: func(*http.Request) (*Response, error) { return nil, nil }})
	if !errors.Is(err, errNoResponse) {
		t.Errorf("neither answer nor error: %v", err)
	}
}

// TestUnshareableResponse checks that a response meant for one client is not sent to other waiting clients.
func TestUnshareableResponse(t *testing.T) {
	for name, header := range map[string]string{"no-store": "Cache-Control: no-store", "private": "Cache-Control: private", "cookie": "Set-Cookie: a=b"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &origin{answer: func(r *http.Request) (*Response, error) {
					time.Sleep(time.Second)
					return jsonAnswer(200, r.Header.Get("Authorization"), header), nil
				}}
				c := New(Options{})
				var all sync.WaitGroup
				for i := range 20 {
					all.Go(func() {
						credentials := fmt.Sprint("Bearer ", i)
						w := serve(t, c, get(expandURL, "Authorization: "+credentials), o.call())
						expect(t, w, credentials, "fwd=miss; fwd-status=200")
					})
				}
				all.Wait()
				checkCalls(t, o, 20)
			})
		})
	}
}

// TestUsersDoNotWaitForEachOther checks that requests from different users are not collapsed.
func TestUsersDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{})
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				o := newOrigin(fmt.Sprint("for ", i))
				slow := func(r *http.Request) (*Response, error) { time.Sleep(time.Second); return o.produce(r) }
				w := serve(t, c, get(expandURL), &Call{Scheme: &Scheme{}, Principal: Principal{User: fmt.Sprint(i)}, Produce: slow})
				expect(t, w, fmt.Sprint("for ", i), "fwd=miss; fwd-status=200; stored")
			})
		}
		all.Wait()
	})
}

// TestRequestAfterwards checks that a client's request is not accessed after it has ended.
func TestRequestAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{answer: func(r *http.Request) (*Response, error) {
			time.Sleep(time.Second)
			return jsonAnswer(200, r.Header.Get("Authorization")+r.URL.Query().Get("filter")), nil
		}}
		c := New(Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		r := get(expandURL+"&filter=x", "Authorization: Bearer a").WithContext(ctx)
		call := o.call()
		if err := c.Serve(httptest.NewRecorder(), r, call); err == nil {
			t.Fatal("no error")
		}
		r.Header.Set("Authorization", "Bearer b")
		r.URL.RawQuery = ""
		call.Produce = nil
		time.Sleep(time.Minute)
		expect(t, serve(t, c, get(expandURL+"&filter=x"), call), "Bearer ax", "hit; ttl=3541")
	})
}

// TestPrivateAmongUsersOfAClient checks that users of the same client do not share private responses.
func TestPrivateAmongUsersOfAClient(t *testing.T) {
	c := New(Options{})
	for _, user := range []string{"alice", "bob", ""} {
		call := &Call{Scheme: &Scheme{VaryBy: VaryByClient}, Principal: Principal{User: user, Client: "app"}}
		call.Produce = newOrigin("for "+user, "Cache-Control: private").produce
		expect(t, serve(t, c, get(expandURL), call), "for "+user, "fwd=miss; fwd-status=200")
	}
	service := &Call{Scheme: &Scheme{}, Principal: Principal{Client: "app"}, Produce: newOrigin("for it", "Cache-Control: private").produce}
	expect(t, serve(t, c, get(expandURL), service), "for it", "fwd=miss; fwd-status=200; stored")
}

func TestPost(t *testing.T) {
	o := &origin{answer: func(r *http.Request) (*Response, error) {
		body := make([]byte, r.ContentLength)
		_, err := r.Body.Read(body)
		return jsonAnswer(200, r.Method+" "+r.Header.Get("Content-Type")+" "+string(body)), err
	}}
	c := New(Options{})
	for _, body := range []string{"a", "b", "a", "b"} {
		w := serve(t, c, newRequest(http.MethodPost, expandURL, "If-None-Match: *", "Content-Type: a/b"), &Call{Scheme: plain, Body: []byte(body), Produce: o.produce})
		if w.Body.String() != "POST a/b "+body || w.Header().Get("Etag") != "" {
			t.Errorf("%q: %q, %v", body, w.Body, w.Header())
		}
	}
	checkCalls(t, o, 2)
}

// TestDetach checks that the producer's context is detached during the client's request, once per response.
func TestDetach(t *testing.T) {
	type key struct{}
	c := New(Options{})
	detached := 0
	call := &Call{Scheme: &Scheme{VaryBy: VaryByNone}, Detach: func(ctx context.Context) context.Context {
		detached++
		return context.WithValue(ctx, key{}, "kept")
	}, Produce: func(r *http.Request) (*Response, error) {
		if r.Context().Value(key{}) != "kept" {
			t.Error("the producer has another context")
		}
		return &Response{Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/fhir+json"}}, Body: []byte("{}")}, nil
	}}
	for range 3 {
		if err := c.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/ValueSet/$expand", nil), call); err != nil {
			t.Fatal(err)
		}
	}
	if detached != 1 {
		t.Errorf("detached %d times", detached)
	}
}
