package history

import "time"

// Rules describes the guarantees of the gateways.
type Rules struct {
	Grace time.Duration // refresh_token_grace
	Lag   time.Duration // maximum delay until a revocation takes effect at all gateways: revocation_max_lag

	Outages []Outage // outages of the gateways

	// Undo is set if an unacknowledged revocation may take effect and be undone later, by the failover of an isolated master.
	Undo bool

	// Each permits one kind of violation, to classify it: second use, access after revocation, rejection of a valid token.
	passTwice, passAccepted, passRefused bool
}

// unknown represents a refresh token in a response that was lost.
const unknown = "?"

// never is later than the time of any operation.
const never = time.Duration(1<<62 - 1)

// grant is the state of a grant. Its times are bounds, because a change happens between an operation's call and its return.
type grant struct {
	redeemed          bool   // the code was exchanged
	current, previous string // latest refresh token and its predecessor
	rotated, replaced time.Duration
	ended             bool
	endedBy           time.Duration // latest time at which it was revoked; never if that was not acknowledged
}

// step returns the possible states of a grant after an operation. It returns none if the response is invalid.
func (r Rules) step(g grant, o Operation) []grant {
	switch {
	case o.Result == Unknown:
		return append(r.perhaps(g, o), g)
	case o.Result != OK && o.Result != Refused:
		return nil
	}
	next := r.answered(g, o)
	if r.Undo && g.ended && g.endedBy == never {
		g.ended = false
		next = append(next, r.answered(g, o)...)
	}
	return next
}

// answered is like step, but for operations that received a response.
func (r Rules) answered(g grant, o Operation) []grant {
	switch o.Kind {
	case Exchange:
		return r.exchange(g, o)
	case Refresh:
		return r.refresh(g, o)
	case Revoke:
		return revoke(g, o)
	case Access:
		return r.access(g, o)
	}
	return nil
}

// perhaps returns the possible states if an operation without a response has taken effect.
func (r Rules) perhaps(g grant, o Operation) []grant {
	switch {
	case o.Kind == Exchange && !g.redeemed:
		return []grant{g.issue(unknown)}
	case o.Kind == Refresh && o.Token == g.current:
		return []grant{g.rotate(o, unknown, never)}
	case o.Kind == Exchange, o.Kind == Refresh, o.Kind == Revoke:
		return []grant{g.end(never)}
	}
	return nil
}

func (r Rules) exchange(g grant, o Operation) []grant {
	switch {
	case o.Result == OK && (!g.redeemed && !g.ended || r.passTwice):
		return []grant{g.issue(o.Next)}
	case o.Result == Refused && g.redeemed:
		return []grant{g.end(o.Return)} // the code was used twice: all its tokens are revoked (RFC 6749 §4.1.2)
	case o.Result == Refused && (g.ended || r.passRefused):
		return []grant{g}
	}
	return nil
}

// refresh revokes the grant if the token is not the latest one. The exception is the predecessor of the latest token within the
// grace period, which may start at the end of an outage.
func (r Rules) refresh(g grant, o Operation) []grant {
	if o.Result == OK {
		return r.refreshed(g, o)
	}
	switch {
	case g.ended:
		return []grant{r.tell(g, o)}
	case r.passRefused:
		return []grant{g}
	case o.Token == g.current:
		return nil
	case o.Token == g.previous && o.Return < g.rotated+r.Grace:
		return nil
	}
	return []grant{g.end(o.Return)} // reuse after the grace period
}

func (r Rules) refreshed(g grant, o Operation) []grant {
	switch {
	case g.ended && !r.passAccepted:
		return nil
	case o.Token == g.current:
		return []grant{g.rotate(o, o.Next, o.Return)}
	case o.Token == g.previous && (o.Next == g.current || g.current == unknown) && (o.Call <= addUnlessNever(g.replaced, r.Grace) || r.mayExcuse(g, o)):
		g.current = o.Next
		return []grant{g}
	case r.passTwice:
		return []grant{g.rotate(o, o.Next, o.Return)}
	}
	return nil
}

// revoke returns 200 for any token. If the token is not the latest one, the grant may or may not have been revoked.
func revoke(g grant, o Operation) []grant {
	if o.Result != OK {
		return nil
	}
	if o.Token == g.current {
		return []grant{g.end(o.Return)}
	}
	return []grant{g, g.end(never)}
}

func (r Rules) access(g grant, o Operation) []grant {
	switch {
	case o.Result == OK && g.ended && o.Call > addUnlessNever(g.endedBy, r.Lag) && !r.passAccepted:
		return nil
	case o.Result == Refused && g.ended:
		return []grant{r.tell(g, o)}
	case o.Result == Refused && !r.passRefused:
		return nil
	}
	return []grant{g}
}

func (g grant) issue(token string) grant {
	g.redeemed, g.current = true, token
	return g
}

// rotate replaces the latest refresh token with next. by is the latest time at which this happened.
func (g grant) rotate(o Operation, next string, by time.Duration) grant {
	g.previous, g.current = o.Token, next
	g.rotated, g.replaced = o.Call, by
	return g
}

// end marks the grant as revoked at time by or earlier, unless it is already revoked.
func (g grant) end(by time.Duration) grant {
	if !g.ended || by < g.endedBy {
		g.ended, g.endedBy = true, by
	}
	return g
}

// tell returns the grant with its revocation acknowledged.
func (r Rules) tell(g grant, o Operation) grant {
	if r.Undo && g.endedBy == never {
		return g
	}
	return g.end(o.Return)
}

func addUnlessNever(than, by time.Duration) time.Duration {
	if than == never {
		return never
	}
	return than + by
}

type session struct{ signedIn bool }

func (r Rules) visit(s session, o Operation) []session {
	switch {
	case o.Result == Unknown && o.Kind == SignIn:
		return []session{s, {signedIn: true}}
	case o.Kind == SignIn && o.Result == OK:
		return []session{{signedIn: true}}
	case o.Kind == Authorize && o.Result == Refused && s.signedIn && !r.passRefused:
		return nil
	}
	return []session{s}
}
