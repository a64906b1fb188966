// The pages by their names in the address. One with a `section` is reached from that, and has no place in the navigation.

import { cluster, broker } from "/static/page-cluster.js";
import { topic, topics } from "/static/page-topics.js";
import { records } from "/static/page-records.js";
import { group, groups } from "/static/page-groups.js";
import { disks, transactions, quotas, acls } from "/static/page-lists.js";
import { jobs } from "/static/page-jobs.js";

export const PAGES = { cluster, topics, records, groups, disks, transactions, quotas, acls, jobs, topic, broker, group };
