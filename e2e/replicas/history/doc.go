// Package history checks whether several gateways respond as a single gateway with one store would. It checks linearizability
// (github.com/anishathalye/porcupine).
//
// A [Record] contains operations: a client's request, its time, and the response. The operations of each grant and of each
// session are a separate history. A history is valid if its operations can be put in an order, each at a moment between its
// call and its return, that satisfies the [Rules]. An operation without a response, or with a 5xx, may take effect at any time
// after its call, or never.
//
// The states of a grant, starting with its code:
//
//	code ──exchange──▶ first refresh token ──refresh──▶ second ──refresh──▶ …
//	  │                  │ reuse within the grace: the same successor
//	  │ reuse            │ later reuse
//	  └──────▶ revoked ◀─┴── revoke
//
// Until the grant is revoked, its access tokens and its latest refresh token are accepted. Afterwards they are rejected, except
// that a gateway may still accept them for a short lag.
package history
