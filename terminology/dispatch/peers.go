package dispatch

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
)

// PeersOptions configures [Peers]. All fields are required.
type PeersOptions struct {
	// Invalidate calls [State.ApplyInvalidation] of all states of this process.
	Invalidate func(Invalidation)

	// Send broadcasts a message with a unique ID. Peers that reconnect within the lifetime get it too.
	Send func(ctx context.Context, id string, message []byte, lifetime time.Duration) error

	// Logger receives a message when the whole cache is invalidated although less was requested.
	Logger *slog.Logger
}

// Peers are the other processes in front of the same servers. They exchange invalidations. Create them with [NewPeers].
// They are safe for concurrent use.
//
// Each message has an ID and a lifetime of ten minutes. A process that reconnects applies the messages it has missed,
// or invalidates everything after a longer pause. It repeats messages that could not be sent, and broadcasts an
// invalidation of everything if any of its messages was lost.
type Peers struct {
	options  PeersOptions
	sendSlot chan struct{} // semaphore of the sender

	mu             sync.Mutex
	next           *message
	lastSendFailed bool // the last message could not be sent, so Announce does not wait
	sent           []sentMessage
	receivedIDs    boundedcache.Cache[string, struct{}] // IDs of received messages; applying a message twice is harmless
	receivedUntil  time.Time                            // all messages sent before this time have been received
}

// message is the next message to send. Each waiting caller has added its Invalidation.
type message struct {
	invalidations []Invalidation
	done          bool
}

type sentMessage struct {
	id string
	at time.Time
}

const (
	messageLifetime  = 10 * time.Minute
	messageMargin    = time.Minute // margin for inaccurate lifetimes
	sendTimeout      = 3 * time.Second
	maxInvalidations = 100 // per message, and of received endings to apply individually; more become an invalidation of everything
	maxMessageSize   = 32 << 10
	maxReceivedIDs   = 50_000
	maxSent          = 1000 // own messages to check for loss; any loss includes the latest ones
)

// NewPeers returns peers that count as up to date until now. Nothing produced before may be stored.
func NewPeers(o PeersOptions) *Peers {
	p := &Peers{options: o, sendSlot: make(chan struct{}, 1), next: new(message), receivedUntil: time.Now()}
	p.receivedIDs.MaxEntries = maxReceivedIDs
	return p
}

// Announce broadcasts an invalidation to the peers. It returns after the broadcast succeeded or failed.
func (p *Peers) Announce(e Invalidation) {
	p.mu.Lock()
	m := p.next
	m.add(e)
	p.mu.Unlock()
	p.sendSlot <- struct{}{}
	defer func() { <-p.sendSlot }()
	p.mu.Lock()
	ready := !m.done && !p.lastSendFailed
	p.mu.Unlock()
	if ready {
		p.send()
	}
}

// send sends all pending endings. Unsent endings stay pending for the next message. It must not be called concurrently.
func (p *Peers) send() {
	id := rand.Text()
	p.mu.Lock()
	m := p.next
	p.next = new(message)
	p.receivedIDs.Put(id, struct{}{}, 1)
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout) // must not depend on the client's connection
	defer cancel()
	err := p.options.Send(ctx, id, m.encode(), messageLifetime)
	p.mu.Lock()
	defer p.mu.Unlock()
	m.done, p.lastSendFailed = true, err != nil
	if err != nil {
		p.next.add(m.invalidations...)
		return
	}
	if p.sent = append(p.sent, sentMessage{id, time.Now()}); len(p.sent) > maxSent {
		p.sent = slices.Delete(p.sent, 0, maxSent/2)
	}
}

// ReceivedMessages contains received messages in sending order.
type ReceivedMessages struct {
	// IsComplete reports whether Messages contains all messages within their lifetime.
	IsComplete bool

	// Messages are the received messages.
	Messages []Message

	// QueriedAt is the time of the query: all messages sent before have been received.
	QueriedAt time.Time
}

// Message is a message of a peer or this process.
type Message struct {
	ID   string // ID passed to Send
	Text []byte // message passed to Send
}

// Apply applies the invalidations of peers. Call it for all news, even without messages, because news indicate that
// sending may work again. It does not wait for peers.
func (p *Peers) Apply(n ReceivedMessages) {
	invalidations, hasUnsent := p.receive(n)
	for _, e := range invalidations {
		p.options.Invalidate(e)
	}
	if !hasUnsent {
		return
	}
	select {
	case p.sendSlot <- struct{}{}:
		go func() {
			defer func() { <-p.sendSlot }()
			p.send()
		}()
	default: // a send is in progress
	}
}

// receive returns the invalidations to apply, and whether endings are waiting to be sent.
func (p *Peers) receive(n ReceivedMessages) (invalidations []Invalidation, hasUnsent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pause := n.QueriedAt.Sub(p.receivedUntil); pause > messageLifetime-messageMargin {
		p.options.Logger.Info("cached expansions cleared: invalidations of other gateways may have been missed", "unheard", pause.Round(time.Second))
		invalidations = []Invalidation{{}}
	}
	ids := make(map[string]bool, len(n.Messages))
	for _, m := range n.Messages {
		ids[m.ID] = true
		if _, isDuplicate := p.receivedIDs.Get(m.ID); !isDuplicate {
			p.receivedIDs.Put(m.ID, struct{}{}, 1)
			invalidations = appendInvalidations(invalidations, parseInvalidations(m.Text)...)
		}
	}
	if n.IsComplete && p.pruneSent(ids, n.QueriedAt) {
		p.options.Logger.Warn("cached expansions cleared on all gateways: the store has lost this gateway's invalidations")
		p.next.add(Invalidation{})
	}
	if n.QueriedAt.After(p.receivedUntil) {
		p.receivedUntil = n.QueriedAt
	}
	p.lastSendFailed = false
	return invalidations, len(p.next.invalidations) > 0
}

// pruneSent reports whether a message of this process is missing. It forgets missing and expired messages.
func (p *Peers) pruneSent(received map[string]bool, queriedAt time.Time) (lost bool) {
	p.sent = slices.DeleteFunc(p.sent, func(m sentMessage) bool {
		expired := queriedAt.Sub(m.at) > messageLifetime-messageMargin
		missing := !expired && m.at.Before(queriedAt) && !received[m.id]
		lost = lost || missing
		return expired || missing
	})
	return lost
}

func (m *message) add(endings ...Invalidation) {
	m.invalidations = appendInvalidations(m.invalidations, endings...)
}

// appendInvalidations appends endings, or replaces all of them with an invalidation of everything.
func appendInvalidations(to []Invalidation, more ...Invalidation) []Invalidation {
	if to = append(to, more...); len(to) > maxInvalidations || slices.ContainsFunc(to, Invalidation.isAll) {
		return []Invalidation{{}}
	}
	return to
}

func (m *message) encode() []byte {
	text, err := json.Marshal(m.invalidations)
	if err != nil || len(text) > maxMessageSize { // err: a canonical is not valid UTF-8
		return []byte("[{}]")
	}
	return text
}

// parseInvalidations parses a message. An invalid message, e.g. from a later version, invalidates everything.
func parseInvalidations(text []byte) (list []Invalidation) {
	if err := json.Unmarshal(text, &list); err != nil || len(list) == 0 {
		return []Invalidation{{}}
	}
	return list
}
