// Package history checks what clients of several gateways were told against what one gateway with one store would
// have told them (github.com/anishathalye/porcupine).
//
// A [Record] holds operations: what a client asked, when, and what it was told. Those of one grant are a history of
// its own, as are those of one session. Such a history is right if its operations can be put in an order, each at some
// moment between its call and its return, in which the [Rules] permit all of them. An operation without an answer, or
// with 5xx, may have happened at any time after its call, or never.
//
// A grant, from its code on:
//
//	code ──exchange──▶ first refresh token ──refresh──▶ second ──refresh──▶ …
//	  │                  │ again within the grace: the same successor
//	  │ again            │ again later
//	  └──────▶ ended ◀───┴── revoke
//
// While it has not ended, its access tokens are accepted, and its latest refresh token too; once it has, neither, but
// for a lag in which gateways have not heard of it.
package history
