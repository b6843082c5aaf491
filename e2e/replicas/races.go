package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/replicas/deployment"
)

// graceOfRaces is the value of refresh_token_grace in all races except one.
const graceOfRaces = time.Second

// raceTrack is a deployment on which the races run, with an app and a signed-in user.
type raceTrack struct {
	*settings
	*deployment.Deployment
	app     *app
	browser *browser
	seen    []*app // one app for each gateway, bypassing nginx
}

// race is the concurrent use of one value.
type race struct {
	name string
	// prepare creates the value. It returns a function that uses the value, a function that returns what a response obtained
	// ("" if the request lost), and the check after a round.
	prepare func(context.Context) (use func(context.Context) answer, won func(answer) string, check check, err error)
	shared  bool // all requests must obtain the same result
	alone   bool // the value is used only once, for comparison
	later   bool // the check takes long, so it runs concurrently with later rounds
}

// check checks the state after a race. It returns the delays until each gateway applied the change.
type check func(ctx context.Context, winner answer, since time.Time) ([]time.Duration, error)

func measureRaces(ctx context.Context, s settings) error {
	track, err := s.openTrack(ctx, "\t\trefresh_token_grace "+graceOfRaces.String()+"\n")
	if err != nil {
		return err
	}
	fmt.Printf("%d rounds of %d at once, %d gateways, %s\n\n", s.rounds, s.atOnce, s.gateways, s.store)
	fmt.Print("| used at once | rounds | winners in each | refused by all gateways after: p50 | p99 | longest |\n|---|--:|--:|--:|--:|--:|\n")
	err = track.runAll(ctx, []race{
		{name: "code", prepare: track.codeRace},
		{name: "refresh token, within the grace", prepare: track.refreshRace, shared: true, later: true},
		{name: "client assertion", prepare: track.assertionRace},
		{name: "launch", prepare: track.launchRace},
		{name: "pushed request", prepare: track.pushRace},
		{name: "(revocation at one gateway)", prepare: track.revocation, alone: true},
	})
	track.Stop()
	if err != nil {
		return err
	}
	if track, err = s.openTrack(ctx, "\t\trefresh_token_grace off\n"); err != nil {
		return err
	}
	defer track.Stop()
	return track.runAll(ctx, []race{{name: "refresh token, `refresh_token_grace off`", prepare: track.refreshOnceRace}})
}

func (s *settings) openTrack(ctx context.Context, options string) (*raceTrack, error) {
	d, err := s.deploy(options)
	if err != nil {
		return nil, err
	}
	client := d.Client()
	track := &raceTrack{settings: s, Deployment: d, app: &app{d.Issuer, client}}
	for _, g := range d.Gateways {
		track.seen = append(track.seen, track.app.at(g))
	}
	track.browser, err = newBrowser(d.Issuer, client, "p0")
	if err == nil {
		err = track.browser.mustSignIn(ctx)
	}
	if err != nil {
		d.Stop()
	}
	return track, err
}

// runAll runs the selected races.
func (t *raceTrack) runAll(ctx context.Context, all []race) error {
	for _, r := range all {
		if !strings.Contains(r.name, t.only) {
			continue
		}
		if err := t.run(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

func (t *raceTrack) run(ctx context.Context, r race) error {
	users, winners := t.atOnce, 1
	if r.alone {
		users = 1
	}
	if r.shared {
		winners = users
	}
	var checks checks
	for n := range t.rounds {
		check, err := t.round(ctx, r, users, winners)
		if err == nil && check != nil {
			err = checks.add(ctx, check, r.later)
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", n+1, err)
		}
	}
	lags, err := checks.wait()
	if err != nil {
		return err
	}
	fmt.Printf("| %s | %d | %d | %s |\n", r.name, t.rounds, winners, lags)
	if longest := lags.quantile(1); longest > time.Second {
		return fmt.Errorf("a gateway heard of an end after %v", longest)
	}
	return nil
}

// checks collects the delays and errors that the checks of a race return.
type checks struct {
	group sync.WaitGroup
	mu    sync.Mutex
	lags  spread
	err   error
}

// add runs a check. If later is true, it runs the check in the background.
func (c *checks) add(ctx context.Context, check func(context.Context) ([]time.Duration, error), later bool) error {
	run := func() {
		lags, err := check(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lags, c.err = append(c.lags, lags...), errors.Join(c.err, err)
	}
	if later {
		c.group.Go(run)
	} else {
		run()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *checks) wait() (spread, error) {
	c.group.Wait()
	return c.lags, c.err
}

// round sends the given number of concurrent requests that use one value. It returns the check to run, if any.
func (t *raceTrack) round(ctx context.Context, r race, users, winners int) (func(context.Context) ([]time.Duration, error), error) {
	use, won, check, err := r.prepare(ctx)
	if err != nil {
		return nil, err
	}
	answers := atOnce(ctx, users, use)
	since := time.Now()
	var winner answer
	prizes := map[string]bool{}
	count := 0
	for _, a := range answers {
		if a.unknown() || a.status == http.StatusTooManyRequests {
			return nil, errors.New("neither won nor lost: " + a.summary())
		}
		if prize := won(a); prize != "" {
			winner, prizes[prize] = a, true
			count++
		}
	}
	if count != winners || len(prizes) != 1 {
		return nil, fmt.Errorf("%d won %d different things, want %d and 1; the last answer: %s", count, len(prizes), winners, answers[len(answers)-1].summary())
	}
	if check == nil {
		return nil, nil
	}
	return func(ctx context.Context) ([]time.Duration, error) { return check(ctx, winner, since) }, nil
}

func atOnce(ctx context.Context, n int, use func(context.Context) answer) []answer {
	answers := make([]answer, n)
	var started, finished sync.WaitGroup
	started.Add(n)
	for i := range n {
		finished.Go(func() {
			started.Done()
			started.Wait() // send all requests simultaneously
			answers[i] = use(ctx)
		})
	}
	finished.Wait()
	return answers
}

func (t *raceTrack) codeRace(ctx context.Context) (func(context.Context) answer, func(answer) string, check, error) {
	request := newAuthorization(scope)
	code, err := t.browser.mustCode(ctx, request)
	use := func(ctx context.Context) answer { return t.app.exchange(ctx, code, request.verifier) }
	return use, accessToken, t.ends, err
}

func accessToken(a answer) string  { return a.tokens().Access }
func refreshToken(a answer) string { return a.tokens().Refresh }

func (t *raceTrack) grant(ctx context.Context) (tokens, error) {
	request := newAuthorization(scope)
	code, err := t.browser.mustCode(ctx, request)
	if err != nil {
		return tokens{}, err
	}
	return mustTokens(t.app.exchange(ctx, code, request.verifier))
}

// refreshRace requires that all requests get the same successor. Reuse of the old token after the grace period must revoke the
// grant.
func (t *raceTrack) refreshRace(ctx context.Context) (func(context.Context) answer, func(answer) string, check, error) {
	first, err := t.grant(ctx)
	use := func(ctx context.Context) answer { return t.app.refresh(ctx, first.Refresh) }
	reuse := func(ctx context.Context, winner answer, since time.Time) ([]time.Duration, error) {
		pause := time.NewTimer(time.Until(since.Add(graceOfRaces + 200*time.Millisecond)))
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if a := t.app.refresh(ctx, first.Refresh); a.oauthError() != "invalid_grant" {
			return nil, errors.New("after the grace: " + a.summary())
		}
		return t.ends(ctx, winner, time.Now())
	}
	return use, refreshToken, reuse, err
}

func (t *raceTrack) refreshOnceRace(ctx context.Context) (func(context.Context) answer, func(answer) string, check, error) {
	first, err := t.grant(ctx)
	use := func(ctx context.Context) answer { return t.app.refresh(ctx, first.Refresh) }
	return use, refreshToken, t.ends, err
}

func (t *raceTrack) assertionRace(context.Context) (func(context.Context) answer, func(answer) string, check, error) {
	assertion, err := t.app.assertion()
	use := func(ctx context.Context) answer { return t.app.assert(ctx, assertion) }
	return use, accessToken, nil, err
}

func (t *raceTrack) launchRace(ctx context.Context) (func(context.Context) answer, func(answer) string, check, error) {
	a := t.app.post(ctx, ehrID, "/oauth2/launch", url.Values{"app": {clientID}, "user": {t.browser.user}, "patient": {"p01"}})
	var body struct{ Launch string }
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.Launch == "" {
		return nil, nil, nil, errors.New("no launch: " + a.summary())
	}
	use := func(ctx context.Context) answer {
		return t.browser.authorize(ctx, newAuthorization("launch openid patient/*.rs", "launch", body.Launch, "aud", t.Issuer+"/fhir/R4").query)
	}
	return use, answer.code, nil, nil
}

func (t *raceTrack) pushRace(ctx context.Context) (func(context.Context) answer, func(answer) string, check, error) {
	a := t.app.post(ctx, clientID, "/oauth2/par", newAuthorization(scope).query)
	var body struct {
		URI string `json:"request_uri"`
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.URI == "" {
		return nil, nil, nil, errors.New("not pushed: " + a.summary())
	}
	use := func(ctx context.Context) answer {
		return t.browser.authorize(ctx, url.Values{"client_id": {clientID}, "request_uri": {body.URI}})
	}
	return use, answer.code, nil, nil
}

// revocation revokes a grant at one gateway. All other gateways must apply the revocation.
func (t *raceTrack) revocation(ctx context.Context) (func(context.Context) answer, func(answer) string, check, error) {
	first, err := t.grant(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, seen := range t.seen {
		if a := seen.read(ctx, first.Access); a.status != http.StatusOK {
			return nil, nil, nil, errors.New("refused before it was revoked: " + a.summary())
		}
	}
	use := func(ctx context.Context) answer { return t.seen[0].revoke(ctx, first.Refresh) }
	won := func(a answer) string { return http.StatusText(a.status) }
	ends := func(ctx context.Context, _ answer, since time.Time) ([]time.Duration, error) {
		return t.refusals(ctx, first, since)
	}
	return use, won, ends, nil
}

// ends checks that the grant of the request that won is revoked at all gateways.
func (t *raceTrack) ends(ctx context.Context, winner answer, since time.Time) ([]time.Duration, error) {
	return t.refusals(ctx, winner.tokens(), since)
}

// refusals returns the delays until each gateway rejected the access token. The gateway must then reject the refresh token,
// too.
func (t *raceTrack) refusals(ctx context.Context, of tokens, since time.Time) (lags []time.Duration, err error) {
	for n, seen := range t.seen {
		for {
			a := seen.read(ctx, of.Access)
			if a.status == http.StatusUnauthorized {
				break
			}
			if time.Since(since) > 5*time.Second {
				return nil, fmt.Errorf("gateway %d accepts an ended access token: %s", n+1, a.summary())
			}
			time.Sleep(time.Millisecond)
		}
		lags = append(lags, time.Since(since))
	}
	for n, seen := range t.seen {
		if a := seen.introspect(ctx, of.Access); a.status != http.StatusOK || strings.Contains(a.body, `"active":true`) {
			return nil, fmt.Errorf("gateway %d, introspection of an ended access token: %s", n+1, a.summary())
		}
		if a := seen.refresh(ctx, of.Refresh); a.oauthError() != "invalid_grant" {
			return nil, fmt.Errorf("gateway %d, refreshing an ended grant: %s", n+1, a.summary())
		}
	}
	return lags, nil
}
