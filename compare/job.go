package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"agilelimiter/compare/arm"
)

// job is what one process plays: some arms, and always the oracle, in one
// situation with one seed.
type job struct {
	Situation string
	Arms      []string
	Seed      uint64
	Fresh     bool
	Series    bool // keep what the plots need
}

func jobs(situations []Situation, arms []arm.Arm, seeds int, fresh bool) (all []job) {
	var names []string
	for _, a := range arms {
		names = append(names, a.Name)
	}
	for _, s := range situations {
		for seed := range seeds {
			all = append(all, job{Situation: s.Name, Arms: names, Seed: uint64(seed) + 1, Fresh: fresh})
		}
	}
	return all
}

// situation returns the job's situation with every default filled in.
func (j job) situation() Situation {
	for _, s := range situations {
		if s.Name == j.Situation {
			s = s.withDefaults()
			if j.Fresh {
				s = s.perturbed(j.Seed)
			}
			return s
		}
	}
	panic("compare: no situation " + j.Situation)
}

// play runs the job in this process.
func (j job) play(t *testing.T) (results []Result) {
	s := j.situation()
	oracle := run(t, s, arm.ByName("oracle")[0], j.Seed)
	for _, a := range arm.ByName(j.Arms...) {
		r := oracle
		if a.Name != "oracle" {
			r = run(t, s, a, j.Seed)
		}
		r.judge(s, oracle)
		if j.Series {
			for b := range r.Goodput {
				r.Capacity = append(r.Capacity, s.capacity(time.Duration(b+1)*bin))
			}
		} else {
			r.Goodput, r.Target, r.RTT = nil, nil, nil
		}
		results = append(results, r)
	}
	return results
}

// spread plays the jobs in child processes of the program self, n at a time,
// each with GOMAXPROCS 1 so that its runs repeat exactly, and returns the
// results in the order of the jobs.
func spread(self string, jobs []job, n int) ([]Result, error) {
	var (
		next    = make(chan int)
		results = make([][]Result, len(jobs))
		errs    = make([]error, len(jobs))
		workers sync.WaitGroup
	)
	for range n {
		workers.Go(func() {
			for i := range next {
				results[i], errs[i] = jobs[i].start(self)
			}
		})
	}
	for i := range jobs {
		next <- i
	}
	close(next)
	workers.Wait()
	var all []Result
	for i := range jobs {
		if errs[i] != nil {
			return nil, errs[i]
		}
		all = append(all, results[i]...)
	}
	return all, nil
}

// start plays the job in a child process.
func (j job) start(self string) (results []Result, err error) {
	encoded, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-job", string(encoded))
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s, seed %d: %w\n%s", j.Situation, j.Seed, err, out)
	}
	lines := json.NewDecoder(bytes.NewReader(out))
	for range j.Arms {
		var r Result
		if err := lines.Decode(&r); err != nil {
			return nil, fmt.Errorf("%s, seed %d: %w\n%s", j.Situation, j.Seed, err, out)
		}
		results = append(results, r)
	}
	return results, nil
}
