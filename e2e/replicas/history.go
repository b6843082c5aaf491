package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/replicas/deployment"
	"github.com/caddy-fhir/caddy-fhir/e2e/replicas/history"
)

// rules returns the guarantees of the deployment. All servers share one clock, so the rules do not allow for clock skew.
func (s *settings) rules() history.Rules {
	return history.Rules{Grace: 2 * time.Second, Lag: 5 * time.Second, Undo: s.store == "sentinel"}
}

func checkHistories(ctx context.Context, s settings) error {
	rules := s.rules()
	d, err := s.deploy("\t\trefresh_token_grace " + rules.Grace.String() + "\n")
	if err != nil {
		return err
	}
	defer d.Stop()
	fmt.Printf("%d clients for %v, %d gateways, %s, -seed %d\n", s.clients, s.length, s.gateways, s.store, s.seed)
	record := history.NewRecord()
	faults, err := s.live(ctx, d, record)
	operations := record.Operations()
	if err != nil {
		return errors.Join(err, s.keep(d, operations, nil))
	}
	if rules.Outages, err = outages(d, record); err != nil {
		return err
	}
	hasOutage := slices.ContainsFunc(rules.Outages, func(o history.Outage) bool { return o.Began > 0 })
	if len(faults) > 0 && !hasOutage {
		return errors.Join(errors.New("the gateways logged no outage despite the faults: check the message in Record.Outages"), s.keep(d, operations, faults))
	}
	report(operations, faults)
	start := time.Now()
	violations := history.Check(operations, rules)
	fmt.Printf("\n%d histories of %d operations checked in %v: %d violations\n",
		history.Subjects(operations), len(operations), time.Since(start).Round(time.Millisecond), len(violations))
	if len(violations) == 0 {
		return nil
	}
	for _, v := range violations[:min(len(violations), 10)] {
		fmt.Println(v)
	}
	return errors.Join(errors.New("clients got inconsistent responses"), s.keep(d, operations, faults))
}

func outages(d *deployment.Deployment, record *history.Record) (all []history.Outage, err error) {
	for _, g := range d.Gateways {
		log, err := os.ReadFile(g.Log())
		if err != nil {
			return nil, err
		}
		some, err := record.Outages(bytes.NewReader(log))
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// live runs the clients while servers fail. It returns the faults.
func (s *settings) live(ctx context.Context, d *deployment.Deployment, record *history.Record) (faults []occurredFault, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.length)
	defer cancel()
	pool, client := new(grantPool), d.Client()
	errs := make(chan error, s.clients+1)
	all := make([]*historian, s.clients)
	var group sync.WaitGroup
	for i := range all {
		all[i] = &historian{
			number: i, record: record, pool: pool, app: &app{d.Issuer, client},
			browser: &browser{user: fmt.Sprintf("p%d", i%people)}, random: rand.New(rand.NewPCG(s.seed, uint64(i))),
		}
		group.Go(func() { errs <- all[i].act(ctx) })
	}
	if !s.calm {
		group.Go(func() {
			var err error
			faults, err = (&saboteur{d, rand.New(rand.NewPCG(s.seed, 1<<32))}).act(ctx, record.Now)
			errs <- err
		})
	}
	group.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	if err == nil {
		err = s.last(d, all[0])
	}
	return faults, err
}

// last uses each grant once more after all servers have recovered. This reveals lost state.
func (s *settings) last(d *deployment.Deployment, h *historian) error {
	for _, g := range d.Gateways {
		if err := g.Ready(30 * time.Second); err != nil {
			return fmt.Errorf("after all faults: %w", err)
		}
	}
	ctx := context.Background()
	time.Sleep(s.rules().Lag)
	for _, g := range h.pool.all() {
		g.mu.Lock()
		refresh, access := g.refresh, g.access
		g.mu.Unlock()
		if len(refresh) == 0 {
			continue
		}
		h.accessWith(ctx, g, access)
		h.refreshWith(ctx, g, refresh[len(refresh)-1])
	}
	return nil
}

// keep saves the record and copies the servers' logs to the folder out.
func (s *settings) keep(d *deployment.Deployment, operations []history.Operation, faults []occurredFault) error {
	folder := filepath.Join("out", "replicas-"+s.store)
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(folder, "record.jsonl"))
	if err != nil {
		return err
	}
	err = history.Write(f, operations)
	for _, h := range faults {
		log.Printf("%9.3f – %9.3f s  %s", h.begin.Seconds(), h.end.Seconds(), h.name)
	}
	log.Print("the record and the logs are in ", folder)
	return errors.Join(err, f.Close(), d.CopyLogs(folder))
}
