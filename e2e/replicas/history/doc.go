// Package history checks that the responses from several gateways to their clients could be those from a single gateway
// with one store (github.com/anishathalye/porcupine).
//
// A [Record] contains operations: the request of a client, its time, and the response. The operations of one grant
// are a separate history, as are those of one session. A history is valid if its operations can be ordered, each at
// a time between its call and its return, so that the [Rules] permit all of them. An operation without a response,
// or with a 5xx response, may have been executed at any time after its call, or never.
//
// The states of a grant, starting with its code:
//
//	code ──exchange──▶ first refresh token ──refresh──▶ second ──refresh──▶ …
//	  │                  │ reuse within the grace: the same successor
//	  │ reuse            │ later reuse
//	  └──────▶ revoked ◀─┴── revoke
//
// Until it is revoked, its access tokens and its latest refresh token are accepted. Afterwards they are rejected,
// except for a lag until all gateways have received the revocation.
package history
