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
	// Invalidate calls [State.ApplyInvalidation] on every state in this process.
	Invalidate func(Invalidation)

	// Send broadcasts a message with a unique ID. Peers that reconnect within the lifetime receive it too.
	Send func(ctx context.Context, id string, message []byte, lifetime time.Duration) error

	// Logger receives a message when all responses are invalidated because invalidations were or may have been lost.
	Logger *slog.Logger
}

// Peers are the other processes in front of the same servers. They exchange invalidations. Create them with [NewPeers]. They
// are safe for concurrent use.
//
// Each message has an ID and a lifetime of ten minutes. A process that reconnects applies the messages it has missed or, after
// a longer pause, invalidates everything. It resends messages that could not be sent. If any of its messages was lost, it
// broadcasts an invalidation of everything.
type Peers struct {
	options  PeersOptions
	sendSlot chan struct{} // semaphore held while a message is sent

	mu             sync.Mutex
	next           *message
	lastSendFailed bool // the last message could not be sent, so Announce returns without sending
	sent           []sentMessage
	receivedIDs    boundedcache.Cache[string, struct{}] // IDs of received messages; applying a message twice does no harm
	receivedUntil  time.Time                            // all messages sent before this time have been received
}

// message is the next message to send. All waiting callers of Announce have added their invalidations.
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
	messageMargin    = time.Minute // safety margin for inaccurate lifetimes
	sendTimeout      = 3 * time.Second
	maxInvalidations = 100 // maximum per message and per call of Apply; any more are replaced by an invalidation of everything
	maxMessageSize   = 32 << 10
	maxReceivedIDs   = 50_000
	maxSent          = 1000 // sent messages to check for loss; a loss always affects the latest ones
)

// NewPeers returns peers without a history. Responses and definitions from before the call must not be stored.
func NewPeers(o PeersOptions) *Peers {
	p := &Peers{options: o, sendSlot: make(chan struct{}, 1), next: new(message), receivedUntil: time.Now()}
	p.receivedIDs.MaxEntries = maxReceivedIDs
	return p
}

// Announce broadcasts an invalidation to the peers. It returns when the broadcast has succeeded or failed.
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

// send sends all pending invalidations. If it fails, they are added to the next message. It must not be called concurrently.
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
	// IsComplete reports whether Messages contains every message that has not expired.
	IsComplete bool

	// Messages are the received messages.
	Messages []Message

	// QueriedAt is the time of the query. All messages sent before that time have been received.
	QueriedAt time.Time
}

// Message is a message sent by a peer or by this process.
type Message struct {
	ID   string // id passed to Send
	Text []byte // message passed to Send
}

// Apply applies the invalidations of peers. Call it after each query, even if there are no messages: a successful query
// indicates that sending may work again. Apply does not wait for peers.
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
	default: // another send is in progress
	}
}

// receive returns the invalidations to apply and whether invalidations are waiting to be sent.
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

// pruneSent removes missing and expired messages from p.sent, and reports whether an unexpired message was missing.
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

// appendInvalidations appends more to the list. If it is too long, it becomes a single invalidation of everything.
func appendInvalidations(to []Invalidation, more ...Invalidation) []Invalidation {
	if to = append(to, more...); len(to) > maxInvalidations || slices.ContainsFunc(to, Invalidation.isAll) {
		return []Invalidation{{}}
	}
	return to
}

func (m *message) encode() []byte {
	text, err := json.Marshal(m.invalidations)
	if err != nil || len(text) > maxMessageSize { // Marshal fails if a canonical is not valid UTF-8
		return []byte("[{}]")
	}
	return text
}

// parseInvalidations parses a message. An invalid message, e.g. of a later version, invalidates everything.
func parseInvalidations(text []byte) (list []Invalidation) {
	if err := json.Unmarshal(text, &list); err != nil || len(list) == 0 {
		return []Invalidation{{}}
	}
	return list
}
