package history

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The checker accepts valid histories and reports each kind of violation.
func TestCheck(t *testing.T) {
	tests := []struct {
		name string
		want string // kind of violation; "" if valid
		ops  []Operation
	}{
		{"a grant's life", "", []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Access, "", OK, ""), at(5, 6, Refresh, "a", OK, "b"),
			at(7, 8, Revoke, "b", OK, ""), at(20, 21, Access, "", Refused, ""), at(22, 23, Refresh, "b", Refused, ""),
		}},
		{"a code redeemed twice", UsedTwice, []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(1, 2, Exchange, "", OK, "b"),
		}},
		{"code used twice, grant revoked", "", []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Exchange, "", Refused, ""), at(30, 31, Access, "", Refused, ""),
		}},
		{"code used twice, grant still valid", StillGood, []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Exchange, "", Refused, ""), at(30, 31, Access, "", OK, ""),
		}},
		{"unused code rejected", NoMoreGood, []Operation{at(1, 2, Exchange, "", Refused, "")}},
		{"code with no response to the first exchange", "", []Operation{
			at(1, 2, Exchange, "", Unknown, ""), at(3, 4, Exchange, "", Refused, ""),
		}},
		{"exchange without a response, not executed", "", []Operation{
			at(1, 2, Exchange, "", Unknown, ""), at(3, 4, Exchange, "", OK, "a"),
		}},
		{"refreshed twice within the grace period, same successor", "", []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Refresh, "a", OK, "b"), at(5, 6, Refresh, "a", OK, "b"), at(7, 8, Refresh, "b", OK, "c"),
		}},
		{"refreshed twice concurrently, two successors", UsedTwice, []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Refresh, "a", OK, "b"), at(3, 4, Refresh, "a", OK, "c"),
		}},
		{"refreshed again after the grace period", UsedTwice, []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Refresh, "a", OK, "b"), at(15, 16, Refresh, "a", OK, "b"),
		}},
		{"used again after the grace period, then grant revoked", "", []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Refresh, "a", OK, "b"), at(15, 16, Refresh, "a", Refused, ""), at(17, 18, Refresh, "b", Refused, ""),
		}},
		{"used again after the grace period, grant still valid", StillGood, []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Refresh, "a", OK, "b"), at(15, 16, Refresh, "a", Refused, ""), at(17, 18, Refresh, "b", OK, "c"),
		}},
		{"used again within the grace period, grant revoked", NoMoreGood, []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Refresh, "a", OK, "b"), at(5, 6, Refresh, "a", Refused, ""),
		}},
		{"no response, grant revoked because of the retry", NoMoreGood, []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Refresh, "a", Unknown, ""), at(5, 6, Refresh, "a", Refused, ""),
		}},
		{"no response, retried", "", []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Refresh, "a", Unknown, ""), at(5, 6, Refresh, "a", OK, "b"), at(7, 8, Refresh, "b", OK, "c"),
		}},
		{"no response, retried too late", "", []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Refresh, "a", Unknown, ""), at(15, 16, Refresh, "a", Refused, ""), at(30, 31, Access, "", Refused, ""),
		}},
		{"valid refresh token rejected", NoMoreGood, []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Refresh, "a", OK, "b"), at(20, 21, Refresh, "b", Refused, ""),
		}},
		{"valid access token rejected", NoMoreGood, []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Access, "", Refused, ""),
		}},
		{"accepted after a revocation, within the lag", "", []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Revoke, "a", OK, ""), at(8, 9, Access, "", OK, ""),
		}},
		{"accepted after a revocation and the lag", StillGood, []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Revoke, "a", OK, ""), at(10, 11, Access, "", OK, ""),
		}},
		{"rejected, then accepted", StillGood, []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Revoke, "a", OK, ""), at(5, 6, Access, "", Refused, ""), at(20, 21, Access, "", OK, ""),
		}},
		{"revocation without a response", "", []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Revoke, "a", Unknown, ""), at(20, 21, Access, "", OK, ""), at(30, 31, Access, "", Refused, ""),
		}},
		{"revocation without a response, token rejected, later accepted", StillGood, []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Revoke, "a", Unknown, ""), at(5, 6, Access, "", Refused, ""), at(20, 21, Access, "", OK, ""),
		}},
		{"unexpected response", Otherwise, []Operation{at(1, 2, Exchange, "", Amiss, "")}},
		{"refreshed after a revocation", StillGood, []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Revoke, "a", OK, ""), at(5, 6, Refresh, "a", OK, "b"),
		}},
		{"a session", "", []Operation{at(1, 2, SignIn, "", OK, ""), at(3, 4, Authorize, "", OK, ""), at(5, 6, Authorize, "", Unknown, "")}},
		{"a session lost", NoMoreGood, []Operation{at(1, 2, SignIn, "", OK, ""), at(3, 4, Authorize, "", Refused, "")}},
		{"two wrongs", Otherwise, []Operation{
			at(1, 2, Exchange, "", OK, "a"), at(3, 4, Access, "", Refused, ""), at(5, 6, Exchange, "", OK, "b"),
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			found := Check(test.ops, Rules{Grace: 10 * time.Second, Lag: 5 * time.Second})
			var what string
			if len(found) > 0 {
				what = found[0].What
			}
			if what != test.want {
				t.Errorf("found %q, want %q", what, test.want)
			}
		})
	}
}

// A failover may undo an unacknowledged revocation, but not an acknowledged one.
func TestUndo(t *testing.T) {
	seen := []Operation{at(1, 2, Exchange, "", OK, "a"), at(3, 4, Revoke, "a", Unknown, ""), at(5, 6, Access, "", Refused, ""), at(20, 21, Access, "", OK, "")}
	acknowledged := append([]Operation(nil), seen...)
	acknowledged[1].Result = OK
	for _, test := range []struct {
		name string
		undo bool
		ops  []Operation
		want int
	}{
		{"a revocation without an answer is seen, and undone", true, seen, 0},
		{"where nothing is undone", false, seen, 1},
		{"a revocation that was acknowledged", true, acknowledged, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			if found := Check(test.ops, Rules{Lag: 5 * time.Second, Undo: test.undo}); len(found) != test.want {
				t.Errorf("found %v", found)
			}
		})
	}
}

// An outage in a gateway's log extends the grace period of refresh tokens that were replaced during or shortly before it.
func TestOutages(t *testing.T) {
	record := &Record{begin: time.Unix(1000, 0)}
	const store, start = `{"ts":1040.0,"msg":"store available again","after":10}`, `{"ts":1040.0,"msg":"serving initial configuration"}`
	for _, test := range []struct {
		name    string
		log     string
		rotated int // second at which the token was rotated
		again   int
		want    int // expected number of violations
	}{
		{"during it", store, 35, 48, 0},
		{"shortly before it", store, 22, 48, 0},
		{"long before it", store, 15, 41, 1},
		{"after its end's grace", store, 35, 52, 1},
		{"after it", store, 42, 55, 1},
		{"without one", `{"ts":1040.0,"msg":"another"}`, 22, 41, 1},
		{"long before a start", start, 15, 48, 0},
		{"after the start's grace", start, 15, 52, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			outages, err := record.Outages(strings.NewReader("no JSON\n" + test.log + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			ops := []Operation{
				at(1, 2, Exchange, "", OK, "a"), at(test.rotated, test.rotated+1, Refresh, "a", OK, "b"),
				at(test.again, test.again+1, Refresh, "a", OK, "b"),
			}
			if found := Check(ops, Rules{Grace: 10 * time.Second, Outages: outages}); len(found) != test.want {
				t.Errorf("found %v", found)
			}
		})
	}
}

// at returns an operation between two times in seconds.
func at(call, end int, kind Kind, token string, result Result, next string) Operation {
	return Operation{
		Subject: "x", Kind: kind, Token: token, Result: result, Next: next,
		Call: time.Duration(call) * time.Second, Return: time.Duration(end) * time.Second,
	}
}

// If one history is invalid, only this history is reported.
func TestSubjects(t *testing.T) {
	other := at(1, 2, Exchange, "", Refused, "")
	other.Subject = "y"
	found := Check([]Operation{at(1, 2, Exchange, "", OK, "a"), other, at(3, 4, Access, "", OK, "")}, Rules{})
	if len(found) != 1 || found[0].Subject != "y" || len(found[0].Operations) != 1 {
		t.Errorf("found %v", found)
	}
}

// Operations are unchanged after they have been written and read.
func TestWriteRead(t *testing.T) {
	record := NewRecord()
	want := []Operation{at(1, 2, Exchange, "", OK, "a"), at(3, 4, Refresh, "a", Unknown, "")}
	for _, o := range want {
		record.Add(o)
	}
	var file bytes.Buffer
	if err := Write(&file, record.Operations()); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(&file); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}
